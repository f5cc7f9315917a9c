// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code in which one thread hands something to another, compiled with the locks, atomics and threads of
//! [loom](https://docs.rs/loom), which runs it in all interleavings and with all values that a weak memory model allows
//! loads to give. A wake-up that is lost is a deadlock, which it reports.
//!
//! The sources are those of `xio-target` themselves: their `crate::sync` is `sync` here.
//!
//! | module | what |
//! |---|---|
//! | `store::answer` | answers of stores, and the thread that takes them and sleeps |
//! | `store::budget` | limits that many threads keep |
//! | `store::embedded::lane` | jobs for worker threads |
//! | `vfio::remote` | requests to a client, whose answers another thread brings |

mod sync;

#[path = ""]
#[allow(dead_code, missing_docs, unused_imports, reason = "sources of another crate; not all is used")]
pub mod store {
    pub use xio_target::store::{Answer, Reply};

    #[path = "../../../userspace/xio-target/src/store/answer.rs"]
    pub mod answer;
    #[path = "../../../userspace/xio-target/src/store/budget.rs"]
    mod budget;
    #[path = ""]
    pub mod embedded {
        #[path = "../../../userspace/xio-target/src/store/embedded/lane.rs"]
        mod lane;
        #[path = "lane_models.rs"]
        pub mod models;
    }
    #[path = "store_models.rs"]
    pub mod models;
}

#[path = ""]
#[allow(dead_code, missing_docs, reason = "sources of another crate; not all is used")]
pub mod vfio {
    #[path = "remote_models.rs"]
    pub mod models;
    #[path = "../../../userspace/xio-target/src/vfio/remote.rs"]
    mod remote;
    #[path = "socket.rs"]
    mod socket;
    #[path = "../../../userspace/xio-target/src/vfio/wire.rs"]
    mod wire;
}
