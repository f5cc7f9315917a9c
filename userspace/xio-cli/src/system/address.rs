// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of PCI functions.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The address of a PCI function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl Address {
    /// Whether it differs from another in the domain only.
    pub fn is_elsewhere(&self, other: &Self) -> bool {
        Self { domain: other.domain, ..*self } == *other && self != other
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str =
            "not the address of a PCI function: BUS:DEVICE.FUNCTION as lspci shows it, as 01:00.0, \
             or with the domain before it, as 0000:01:00.0";
        let hex = |text: &str, longest: usize| {
            let digits =
                !text.is_empty() && text.len() <= longest && text.bytes().all(|b| b.is_ascii_hexdigit());
            digits.then(|| u32::from_str_radix(text, 16).ok()).flatten().ok_or(FORM)
        };
        let byte = |text| hex(text, 2).map(|number| number as u8);
        let (place, function) = text.rsplit_once('.').ok_or(FORM)?;
        let (place, device) = place.rsplit_once(':').ok_or(FORM)?;
        let (domain, bus) = place.split_once(':').unwrap_or(("0", place));
        let (device, function) = (byte(device)?, hex(function, 1)? as u8);
        if device > 31 || function > 7 {
            return Err(FORM);
        }
        Ok(Self { domain: hex(domain, 8)?, bus: byte(bus)?, device, function })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_addresses_are_of_domain_0() {
        let text = |text: &str| text.parse::<Address>().unwrap().to_string();
        assert_eq!(text("01:00.0"), "0000:01:00.0");
        assert_eq!(text("0000:C1:1f.7"), "0000:c1:1f.7");
        assert_eq!(text("10000:1:0.0"), "10000:01:00.0");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["", "01:00", "0:1:2:3.4", "01:20.0", "01:00.8", "01:00.00", "g:0.0", "+1:0.0", ":.", "001:0.0"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_same_place_in_another_domain_is_told() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        assert!(address("01:00.0").is_elsewhere(&address("10000:01:00.0")));
        assert!(!address("01:00.0").is_elsewhere(&address("01:00.0")));
        assert!(!address("01:00.0").is_elsewhere(&address("10000:01:00.1")));
    }
}
