// SPDX-License-Identifier: GPL-2.0
//! What confines the device.

use super::dma::DmaDevice;
use kernel::bindings;

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
