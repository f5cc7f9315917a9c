// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every model, in every interleaving in which threads are interrupted three times at most; more takes hours, and bugs need
//! less.

use xio_models::{store, vfio};

macro_rules! models {
    ($($place:path { $($name:ident)* })*) => { $($(
        #[test]
        fn $name() {
            use $place as place;
            let mut model = loom::model::Builder::new();
            model.preemption_bound = model.preemption_bound.or(Some(3));
            model.check(place::$name);
        }
    )*)* };
}

models! {
    store::models { answers_wake_who_takes_them answers_wake_who_takes_them_when_another_asked budgets_are_never_exceeded }
    store::embedded::models { jobs_are_done_before_the_end jobs_wake_workers }
    vfio::models {
        answers_belong_to_their_requests interruptions_end_requests_and_spoil_none interruptions_end_requests_that_nobody_answers the_end_of_the_client_ends_requests
    }
}
