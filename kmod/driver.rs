// SPDX-License-Identifier: GPL-2.0
//! The PCI driver: which functions it takes, and how they are let go.

use crate::{
    controller::{Buffered, Hw, Xio},
    interrupt::Vectors,
    registers::Registers,
    sys::{
        chardev::Node,
        cmb::Cmb,
        debugfs::DebugFs,
        dma::DmaDevice,
        mm::AddressSpace,
        params,
        pci::{self as sys_pci, adapter::Callbacks, Enabled, Peers},
    },
};
use kernel::{
    device::Core,
    device_id::IdArray,
    dma::{Device as _, DmaMask},
    pci,
    prelude::*,
    sync::Arc,
};

/// NVMe controllers. Not `pci_device_table!`: a plain table has no module alias, so udev does not load this
/// module for every NVMe disk.
static IDS: IdArray<pci::DeviceId, (), 1> =
    IdArray::new([(pci::DeviceId::from_class(0x010802, 0xff_ffff), &())]);

/// The driver.
pub(crate) struct Driver;

/// A bound device. The fields are dropped in this order.
#[pin_data]
pub(crate) struct Bound<'a> {
    _debugfs: DebugFs,
    xio: Arc<Xio>,
    vectors: Vectors<'a>,
    _index: Index,
    _enabled: Enabled,
}

impl pci::Driver for Driver {
    type IdInfo = ();
    type Data<'a> = Bound<'a>;
    const ID_TABLE: pci::IdTable<()> = &IDS;

    fn probe<'a>(
        pdev: &'a pci::Device<Core<'_>>,
        _info: Option<&'a ()>,
    ) -> impl PinInit<Bound<'a>, Error> + 'a {
        pin_init::pin_init_scope(move || {
            if !sys_pci::is_nvme(pdev) {
                dev_err!(pdev, "not an NVMe controller\n");
                return Err(ENODEV);
            }
            if params::claim_override() && !sys_pci::has_driver_override(pdev) {
                return Err(ENODEV);
            }
            // SAFETY: Kept in `Bound`, or dropped here.
            let enabled = unsafe { Enabled::new(pdev)? };
            // SAFETY: Kept in `Hw`, which `unbind` drops.
            let regs = Registers::new(unsafe { sys_pci::map_bar0(pdev)? });
            check_capabilities(pdev, &regs)?;
            // SAFETY: Nothing was mapped for the device yet.
            unsafe { pdev.dma_set_mask_and_coherent(DmaMask::new::<64>())? };
            // SAFETY: All copies are in `Hw`, which `unbind` drops.
            let dev = unsafe { DmaDevice::new(pdev.as_ref()) };
            let (vectors, interrupts) = Vectors::new(pdev)?;
            let place = crate::controller::Place {
                address: sys_pci::address(pdev),
                doorbells: sys_pci::Doorbells::new(pdev)?,
                cmb: None,
                // SAFETY: Kept in `Hw`, which `unbind` drops.
                peers: unsafe { Peers::new(pdev) }.ok(),
            };
            let reaper = interrupts.clone();
            let mut hw = Hw::new(regs, interrupts, dev, place)?;
            hw.place.cmb = find_cmb(pdev, &hw.regs);
            let namespaces = hw.identity.namespaces;
            let index = Index::new()?;
            let xio = Xio::new(hw, AddressSpace::new()?, index.0)?;
            let node = xio.clone();
            Ok(try_pin_init!(Bound {
                _debugfs: DebugFs::new(node.clone()),
                xio,
                vectors,
                _index: index,
                _enabled: enabled,
                // Last: from here on files can be opened.
                _: {
                    // SAFETY: `unbind` unregisters it; not registered before.
                    unsafe { Node::register(&node, &dev)? };
                    reaper.set_reaper(Some(node.clone()));
                    node.clone().watch();
                    let name = node.node().name();
                    dev_info!(pdev, "{name}: NVMe Key Value controller, {namespaces} namespace(s)\n");
                },
            }? Error))
        })
    }

    fn unbind<'a>(_pdev: &'a pci::Device<Core<'_>>, this: Pin<&Bound<'a>>) {
        // SAFETY: Registered in `probe`.
        unsafe { this.xio.node().unregister() };
        this.xio.stop_watching();
        // Revoked under the lock, freed without it.
        let hw = this.xio.take();
        if let Some(hw) = &hw {
            hw.interrupts.set_reaper(None);
        }
        drop(hw);
        // Nothing can ask for it any more.
        this.xio.settle();
    }
}

/// The controller memory buffer, if there is one that can be used.
fn find_cmb(pdev: &pci::Device<Core<'_>>, regs: &Registers) -> Option<Buffered> {
    let (at, uses) = regs.cmb()?;
    // SAFETY: Kept in `Hw`, which `unbind` drops.
    let found = unsafe { Cmb::new(pdev, at) };
    let found = found.and_then(|cmb| {
        regs.place_cmb(cmb.bus())?;
        Ok(Buffered { memory: Arc::new(cmb, GFP_KERNEL)?, uses })
    });
    found.inspect_err(|e| dev_info!(pdev, "the controller memory buffer is not used: {e:?}\n")).ok()
}

/// Looks at what can be read without touching anything.
fn check_capabilities(pdev: &pci::Device<Core<'_>>, regs: &Registers) -> Result {
    let cap = regs.cap();
    if cap.0 == u64::MAX {
        dev_err!(pdev, "the device does not answer\n");
        return Err(ENODEV);
    }
    if !cap.has_io_command_sets() {
        dev_info!(
            pdev,
            "no choice of I/O command sets (CAP.CSS bit 6), so no Key Value: left to other drivers\n"
        );
        return Err(ENODEV);
    }
    if cap.mpsmin() != 0 {
        dev_err!(
            pdev,
            "the controller needs memory pages above 4 KiB (CAP.MPSMIN), which is not supported\n"
        );
        return Err(ENODEV);
    }
    Ok(())
}

impl Callbacks for Driver {
    fn quiesce(data: &Bound<'_>) {
        data.xio.quiesce();
    }

    fn resume(data: &Bound<'_>) {
        data.xio.resume();
    }

    fn recovered(data: &Bound<'_>) {
        data.xio.recovered();
    }

    fn shutdown(data: &Bound<'_>) {
        data.xio.shut_down();
    }
}

/// The N of `/dev/rocm-xioN`, free again after unbind.
struct Index(u32);

/// Numbers in use.
static INDICES: kernel::sync::atomic::Atomic<u64> = kernel::sync::atomic::Atomic::new(0);

impl Index {
    fn new() -> Result<Self> {
        use kernel::sync::atomic::{Full, Relaxed};
        let mut used = INDICES.load(Relaxed);
        loop {
            let free = used.trailing_ones();
            let bit = 1u64.checked_shl(free).ok_or(ENOSPC)?;
            match INDICES.cmpxchg(used, used | bit, Full) {
                Ok(_) => return Ok(Self(free)),
                Err(now) => used = now,
            }
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let mut used = INDICES.load(kernel::sync::atomic::Relaxed);
        while let Err(now) = INDICES.cmpxchg(used, used & !(1 << self.0), kernel::sync::atomic::Full) {
            used = now;
        }
    }
}
