// SPDX-License-Identifier: GPL-2.0
//! What confines the device.

use super::{dma::DmaDevice, shim};
use kernel::{bindings, error::to_result, prelude::*};

/// The `IOMMU_*` value of the device's domain as it is now. (Root can change the type while a driver is bound.)
pub(crate) fn kind(dev: &DmaDevice) -> u32 {
    // SAFETY: `DmaDevice` is a bound device; its domain stays while it is.
    let kind = unsafe {
        let domain = bindings::iommu_get_domain_for_dev(dev.as_raw());
        if domain.is_null() {
            return xio_uapi::IOMMU_NONE;
        }
        (*domain).type_
    };
    if kind & bindings::__IOMMU_DOMAIN_PAGING == 0 {
        xio_uapi::IOMMU_IDENTITY
    } else if kind & bindings::__IOMMU_DOMAIN_DMA_FQ != 0 {
        xio_uapi::IOMMU_TRANSLATED_LAZY
    } else {
        xio_uapi::IOMMU_TRANSLATED
    }
}

/// The `UNCONFINED_*` bits of the device as it is now; 0 when an IOMMU confines it.
pub(crate) fn unconfined(dev: &DmaDevice) -> u32 {
    let translated = matches!(kind(dev), xio_uapi::IOMMU_TRANSLATED | xio_uapi::IOMMU_TRANSLATED_LAZY);
    let gap = if translated { 0 } else { xio_uapi::UNCONFINED_NOT_TRANSLATED };
    // SAFETY: A bound device.
    gap | unsafe { shim::rocm_xio_iommu_gaps(dev.as_raw()) }
}

/// Asks whether an unconfined device may be used at all, and leaves a trace of it.
pub(crate) fn use_unconfined() -> Result {
    // SAFETY: May be called by any task.
    to_result(unsafe { shim::rocm_xio_use_unconfined() })
}

const _: () = {
    assert!(xio_uapi::UNCONFINED_GROUP == 1 << 1);
    assert!(xio_uapi::UNCONFINED_INTERRUPTS == 1 << 2);
    assert!(xio_uapi::UNCONFINED_RESERVED == 1 << 3);
};
