// SPDX-License-Identifier: GPL-2.0
//! What `kernel::pci` lacks.

use super::shim;
use kernel::{bindings, device::Core, error::to_result, pci, prelude::*};

/// Smallest BAR 0 of a controller: registers and the doorbells of the admin queues.
pub(crate) const MIN_BAR: usize = 0x1008;

/// BAR 0, for as long as the device is bound.
pub(crate) type Bar0 = pci::Bar<'static, MIN_BAR>;

fn raw(pdev: &pci::Device<Core<'_>>) -> *mut bindings::pci_dev {
    core::ptr::from_ref(pdev).cast_mut().cast()
}

/// Whether root named a driver for the device.
pub(crate) fn has_driver_override(pdev: &pci::Device<Core<'_>>) -> bool {
    // SAFETY: A valid device.
    unsafe { shim::rocm_xio_has_driver_override(&raw mut (*raw(pdev)).dev) }
}

/// A device with its memory enabled. Disabled, and kept from the bus, when dropped.
///
/// # Invariants
///
/// The device is bound.
pub(crate) struct Enabled(*mut bindings::pci_dev);

// SAFETY: A `struct pci_dev` may be used from any thread.
unsafe impl Send for Enabled {}

impl Enabled {
    /// Enables the device.
    ///
    /// # Safety
    ///
    /// The result is dropped before the device is unbound.
    pub(crate) unsafe fn new(pdev: &pci::Device<Core<'_>>) -> Result<Self> {
        pdev.enable_device_mem()?;
        // What recovery from an error restores: what the core saved when it found the device has its memory disabled.
        // SAFETY: A valid device.
        to_result(unsafe { bindings::pci_save_state(raw(pdev)) }).inspect_err(|_| Self::disable(raw(pdev)))?;
        // INVARIANT: By the contract of this function.
        Ok(Self(raw(pdev)))
    }
}

impl Enabled {
    fn disable(pdev: *mut bindings::pci_dev) {
        // SAFETY: Only called with devices that are being bound or are bound.
        unsafe {
            bindings::pci_clear_master(pdev);
            bindings::pci_disable_device(pdev);
        }
    }
}

impl Drop for Enabled {
    fn drop(&mut self) {
        Self::disable(self.0);
    }
}

/// Maps BAR 0.
///
/// # Safety
///
/// The result is dropped before the device is unbound.
pub(crate) unsafe fn map_bar0(pdev: &pci::Device<Core<'_>>) -> Result<Bar0> {
    // SAFETY: A valid device.
    if !unsafe { shim::rocm_xio_has_memory_bar(raw(pdev), 0) } {
        return Err(ENODEV);
    }
    let bar = pdev.iomap_region_sized::<MIN_BAR>(0, c"rocm_xio")?;
    // SAFETY: Only the lifetime changes; the caller drops it in time.
    Ok(unsafe { core::mem::transmute::<pci::Bar<'_, MIN_BAR>, Bar0>(bar) })
}

/// Where a function sits.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub(crate) domain: u32,
    pub(crate) bus: u8,
    pub(crate) device: u8,
    pub(crate) function: u8,
}

impl Address {
    /// Domain, bus, device and function in one number.
    pub(super) fn as_number(self) -> u32 {
        self.domain << 16 | u32::from(self.bus) << 8 | u32::from(self.device) << 3 | u32::from(self.function)
    }
}

impl kernel::fmt::Display for Address {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// The PCI address of a device.
pub(crate) fn address(pdev: &pci::Device<Core<'_>>) -> Address {
    let raw = raw(pdev);
    // SAFETY: A valid device.
    let (domain, bus, devfn) =
        unsafe { (shim::rocm_xio_pci_domain(raw), shim::rocm_xio_pci_bus(raw), (*raw).devfn) };
    Address { domain, bus, device: (devfn >> 3 & 0x1f) as u8, function: (devfn & 7) as u8 }
}

/// Whether the function is an NVMe controller. (With driver_override root can give us anything.)
pub(crate) fn is_nvme(pdev: &pci::Device<Core<'_>>) -> bool {
    // SAFETY: A valid device.
    unsafe { (*raw(pdev)).class == 0x010802 }
}

/// The device's BARs as memory that other devices reach.
///
/// # Invariants
///
/// The device is bound, and known to the PCI core as a provider.
pub(crate) struct Peers(*mut bindings::pci_dev);

// SAFETY: A `struct pci_dev` may be used from any thread.
unsafe impl Send for Peers {}
// SAFETY: As above.
unsafe impl Sync for Peers {}

impl Peers {
    /// Tells the PCI core of the device.
    ///
    /// # Safety
    ///
    /// The result is dropped before the device is unbound.
    pub(crate) unsafe fn new(pdev: &pci::Device<Core<'_>>) -> Result<Self> {
        // SAFETY: Called from probe.
        to_result(unsafe { bindings::pcim_p2pdma_init(raw(pdev)) })?;
        // INVARIANT: By the contract of this function.
        Ok(Self(raw(pdev)))
    }

    /// A BAR.
    pub(super) fn bar(&self, bar: i32) -> Result<*mut bindings::p2pdma_provider> {
        // SAFETY: By the type invariant.
        let provider = unsafe { bindings::pcim_p2pdma_provider(self.0, bar) };
        if provider.is_null() {
            return Err(EOPNOTSUPP);
        }
        Ok(provider)
    }
}

/// The pages of BAR 0 that hold doorbells and nothing that must not be mapped.
pub(crate) struct Doorbells {
    bar0: u64,
    /// Numbers of the pages.
    pages: core::ops::Range<usize>,
}

/// A page of doorbells.
pub(crate) struct DoorbellPage(u64);

impl DoorbellPage {
    pub(crate) fn phys(&self) -> u64 {
        self.0
    }
}

impl Doorbells {
    pub(crate) fn new(pdev: &pci::Device<Core<'_>>) -> Result<Self> {
        let whole = (pdev.resource_len(0)? / nvme_kv::PAGE_SIZE as u64) as usize;
        let end = first_msix_page(pdev).map_or(whole, |page| page.min(whole));
        // Page 0 has the registers.
        Ok(Self { bar0: pdev.resource_start(0)?, pages: 1..end })
    }

    /// The page of the doorbell at an offset in BAR 0; `None` when it may not be mapped.
    pub(crate) fn page(&self, offset: usize) -> Option<DoorbellPage> {
        let page = offset / nvme_kv::PAGE_SIZE;
        self.pages.contains(&page).then(|| DoorbellPage(self.bar0 + (page * nvme_kv::PAGE_SIZE) as u64))
    }
}

/// Number of the first page of BAR 0, from page 1 on, that holds part of the MSI-X table or pending bits.
fn first_msix_page(pdev: &pci::Device<Core<'_>>) -> Option<usize> {
    let raw = raw(pdev);
    // SAFETY: A valid device.
    let cap = unsafe { bindings::pci_find_capability(raw, bindings::PCI_CAP_ID_MSIX as i32) };
    if cap == 0 {
        return None;
    }
    let read = |at: u32| {
        let mut value = 0;
        let at = (u32::from(cap) + at) as i32;
        // SAFETY: A valid device, and memory for the value.
        let failed = unsafe { bindings::pci_read_config_dword(raw, at, &mut value) };
        (failed == 0).then_some(value)
    };
    let (control, table, pending) = (read(0), read(bindings::PCI_MSIX_TABLE), read(bindings::PCI_MSIX_PBA));
    let (Some(control), Some(table), Some(pending)) = (control, table, pending) else {
        // A device that does not answer: nothing may be mapped.
        return Some(1);
    };
    let entries = (control >> 16 & 0x7ff) as usize + 1;
    let structures = [(table, entries * 16), (pending, entries.div_ceil(64) * 8)];
    let in_bar0 = structures.into_iter().filter(|(at, _)| at & 7 == 0);
    let pages = in_bar0.filter_map(|(at, len)| {
        let start = (at & !7) as usize;
        let last = (start + len - 1) / nvme_kv::PAGE_SIZE;
        (last > 0).then_some((start / nvme_kv::PAGE_SIZE).max(1))
    });
    pages.min()
}

/// Sets the callbacks that `pci::Adapter` does not know.
pub(crate) mod adapter {
    use super::super::chardev::Sync;
    use kernel::{bindings, driver, pci, prelude::*, types::Opaque};

    /// What a driver does beyond [`pci::Driver`].
    pub(crate) trait Callbacks: pci::Driver + 'static {
        /// The device is about to be reset, or to lose power, or is cut off.
        fn quiesce(data: &Self::Data<'_>);
        /// It was reset, or has power again.
        fn resume(data: &Self::Data<'_>);
        /// The system is done with an error of the device or the bus.
        fn recovered(data: &Self::Data<'_>);
        /// The machine goes down.
        fn shutdown(data: &Self::Data<'_>);
    }

    /// `pci::Adapter` with the [`Callbacks`].
    pub(crate) struct Adapter<T>(core::marker::PhantomData<T>);

    // SAFETY: `pci_driver` is `repr(C)` and embeds a `device_driver` at that offset; the data is the driver's.
    unsafe impl<T: Callbacks> driver::DriverLayout for Adapter<T> {
        type DriverType = bindings::pci_driver;
        type DriverData<'bound> = T::Data<'bound>;
        const DEVICE_DRIVER_OFFSET: usize = core::mem::offset_of!(bindings::pci_driver, driver);
    }

    struct Handlers<T>(core::marker::PhantomData<T>);

    struct Power<T>(core::marker::PhantomData<T>);

    impl<T: Callbacks> Power<T> {
        /// Suspending to idle, to memory and to disk are the same to the controller.
        const TABLE: &'static Sync<bindings::dev_pm_ops> = &{
            let mut table: bindings::dev_pm_ops = pin_init::zeroed();
            table.suspend = Some(suspend::<T>);
            table.freeze = Some(suspend::<T>);
            table.poweroff = Some(suspend::<T>);
            table.resume = Some(resume::<T>);
            table.thaw = Some(resume::<T>);
            table.restore = Some(resume::<T>);
            // SAFETY: Functions that may be called from any thread.
            unsafe { Sync::new(table) }
        };
    }

    impl<T: Callbacks> Handlers<T> {
        const TABLE: &'static Sync<bindings::pci_error_handlers> = &{
            let mut table: bindings::pci_error_handlers = pin_init::zeroed();
            table.error_detected = Some(error_detected::<T>);
            table.slot_reset = Some(slot_reset);
            table.resume = Some(error_resume::<T>);
            table.reset_prepare = Some(reset_prepare::<T>);
            table.reset_done = Some(reset_done::<T>);
            // SAFETY: Functions that may be called from any thread.
            unsafe { Sync::new(table) }
        };
    }

    /// # Safety
    ///
    /// `pdev` is bound to `T`, and stays so for `'a`.
    unsafe fn data<'a, T: Callbacks>(pdev: *mut bindings::pci_dev) -> Option<&'a T::Data<'a>> {
        // SAFETY: The driver core stores the pinned data of a bound device there, or null before and after.
        unsafe { (*pdev).dev.driver_data.cast::<T::Data<'a>>().as_ref() }
    }

    unsafe extern "C" fn suspend<T: Callbacks>(dev: *mut bindings::device) -> kernel::ffi::c_int {
        // SAFETY: The driver core holds the device lock, so the device stays bound to `T`.
        if let Some(data) = unsafe { (*dev).driver_data.cast::<T::Data<'_>>().as_ref() } {
            T::quiesce(data);
        }
        0
    }

    unsafe extern "C" fn resume<T: Callbacks>(dev: *mut bindings::device) -> kernel::ffi::c_int {
        // SAFETY: As in `suspend`.
        if let Some(data) = unsafe { (*dev).driver_data.cast::<T::Data<'_>>().as_ref() } {
            T::resume(data);
        }
        0
    }

    unsafe extern "C" fn error_detected<T: Callbacks>(
        pdev: *mut bindings::pci_dev,
        state: bindings::pci_channel_state_t,
    ) -> bindings::pci_ers_result_t {
        // What was corrected, or did not stop the device, concerns nobody.
        if state == bindings::pci_channel_io_normal {
            return bindings::pci_ers_result_PCI_ERS_RESULT_CAN_RECOVER;
        }
        // SAFETY: The PCI core holds the device lock, so the device stays bound.
        if let Some(data) = unsafe { data::<T>(pdev) } {
            T::quiesce(data);
        }
        if state == bindings::pci_channel_io_perm_failure {
            bindings::pci_ers_result_PCI_ERS_RESULT_DISCONNECT
        } else {
            bindings::pci_ers_result_PCI_ERS_RESULT_NEED_RESET
        }
    }

    unsafe extern "C" fn slot_reset(pdev: *mut bindings::pci_dev) -> bindings::pci_ers_result_t {
        // SAFETY: A device of ours, whose configuration was saved when it was bound.
        unsafe { bindings::pci_restore_state(pdev) };
        bindings::pci_ers_result_PCI_ERS_RESULT_RECOVERED
    }

    unsafe extern "C" fn error_resume<T: Callbacks>(pdev: *mut bindings::pci_dev) {
        // SAFETY: As in `error_detected`.
        if let Some(data) = unsafe { data::<T>(pdev) } {
            T::recovered(data);
        }
    }

    unsafe extern "C" fn reset_prepare<T: Callbacks>(pdev: *mut bindings::pci_dev) {
        // SAFETY: The PCI core holds the device lock, so the device stays bound.
        if let Some(data) = unsafe { data::<T>(pdev) } {
            T::quiesce(data);
        }
    }

    unsafe extern "C" fn reset_done<T: Callbacks>(pdev: *mut bindings::pci_dev) {
        // SAFETY: As in `reset_prepare`.
        if let Some(data) = unsafe { data::<T>(pdev) } {
            T::resume(data);
        }
    }

    unsafe extern "C" fn shutdown<T: Callbacks>(pdev: *mut bindings::pci_dev) {
        // SAFETY: The driver core holds the device lock, so the device stays bound.
        if let Some(data) = unsafe { data::<T>(pdev) } {
            T::shutdown(data);
        }
    }

    // SAFETY: Delegates to `pci::Adapter`, which leaves the additional fields alone.
    unsafe impl<T: Callbacks> driver::RegistrationOps for Adapter<T> {
        unsafe fn register(
            driver: &Opaque<bindings::pci_driver>,
            name: &'static CStr,
            module: &'static ThisModule,
        ) -> Result {
            // SAFETY: The driver is not registered yet; the tables are static.
            unsafe {
                (*driver.get()).err_handler = Handlers::<T>::TABLE.get();
                (*driver.get()).shutdown = Some(shutdown::<T>);
                (*driver.get()).driver.pm = Power::<T>::TABLE.get();
                <pci::Adapter<T> as driver::RegistrationOps>::register(driver, name, module)
            }
        }

        unsafe fn unregister(driver: &Opaque<bindings::pci_driver>) {
            // SAFETY: The contract is the same.
            unsafe { <pci::Adapter<T> as driver::RegistrationOps>::unregister(driver) }
        }
    }
}
