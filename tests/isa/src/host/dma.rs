// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses by which the controller reaches memory. They have nothing to do with those of the device.

use nvme_kv::PAGE_SIZE;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use xio_target::host::DmaFault;

const PAGE: u64 = PAGE_SIZE as u64;
/// First page number of scattered memory, and over how many numbers it is spread.
const SCATTERED: (u64, u64) = (1 << 20, 1 << 30);
/// First page number of contiguous memory.
const CONTIGUOUS: u64 = 1 << 36;

/// The pages that the controller may reach, by its addresses.
#[derive(Debug, Default)]
pub struct Dma(Mutex<Pages>);

#[derive(Debug, Default)]
struct Pages {
    /// Address for the device, and whether the controller may write, by page number.
    pages: HashMap<u64, (u64, bool)>,
    scattered: u64,
    contiguous: u64,
}

impl Dma {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each page of memory of the device an address for the controller, in no order.
    pub fn scatter(&self, device: u64, len: usize, writable: bool) -> Vec<u64> {
        let mut pages = self.pages();
        let mut addrs = Vec::new();
        for n in 0..len.div_ceil(PAGE_SIZE) as u64 {
            // An odd factor maps the numbers below a power of two to each other.
            let number = SCATTERED.0 + pages.scattered.wrapping_mul(0x9e37_79b1) % SCATTERED.1;
            pages.scattered += 1;
            pages.pages.insert(number, (device + n * PAGE, writable));
            addrs.push(number * PAGE);
        }
        addrs
    }

    /// Gives the pages of memory of the device addresses that follow each other; the first.
    pub fn contiguous(&self, device: u64, len: usize, writable: bool) -> u64 {
        let mut pages = self.pages();
        let count = len.div_ceil(PAGE_SIZE) as u64;
        let first = CONTIGUOUS + pages.contiguous;
        pages.contiguous += count + 1;
        for n in 0..count {
            pages.pages.insert(first + n, (device + n * PAGE, writable));
        }
        first * PAGE
    }

    /// The pieces of memory of the device behind a range.
    pub(super) fn segments(
        &self,
        addr: u64,
        len: usize,
        write: bool,
    ) -> Result<Vec<(u64, Range<usize>)>, DmaFault> {
        let fault = DmaFault { addr, len, write };
        let pages = self.pages();
        let mut segments: Vec<(u64, Range<usize>)> = Vec::new();
        let mut done = 0;
        while done < len {
            let at = addr.checked_add(done as u64).ok_or(fault)?;
            let in_page = at % PAGE;
            let count = (len - done).min((PAGE - in_page) as usize);
            let (device, writable) = pages.pages.get(&(at / PAGE)).ok_or(fault)?;
            if write && !writable {
                return Err(fault);
            }
            segments.push((device + in_page, done..done + count));
            done += count;
        }
        Ok(segments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_given_pages_can_be_reached() {
        let dma = Dma::default();
        let pages = dma.scatter(0x1_0000, 3 * PAGE_SIZE, true);
        assert!(pages.windows(2).all(|w| w[0].abs_diff(w[1]) != PAGE));
        assert_eq!(dma.segments(pages[1] + 8, 4, true), Ok(vec![(0x1_1008, 0..4)]));
        assert!(dma.segments(pages[0] + 4092, 8, false).is_err());
        let first = dma.contiguous(0x5_0000, 2 * PAGE_SIZE, false);
        assert_eq!(dma.segments(first + 4092, 8, false), Ok(vec![(0x5_0ffc, 0..4), (0x5_1000, 4..8)]));
        assert!(dma.segments(first, 4, true).is_err() && dma.segments(u64::MAX, 4, false).is_err());
    }
}
