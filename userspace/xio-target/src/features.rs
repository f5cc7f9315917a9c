// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features (Base, sections 5.1.11 and 5.1.25).

use crate::kv::ALL;
use crate::Config;
use nvme_kv::admin::{feature, Feature, NumberOfQueues};
use nvme_kv::Status;
use std::collections::BTreeMap;
use std::time::Duration;

/// Over temperature threshold after a reset, in kelvin.
const TEMPERATURE_LIMIT: u32 = 343;
/// Get Features, SEL: supported capabilities.
const SELECT_CAPABILITIES: u8 = 3;
/// Capabilities: changeable.
const CHANGEABLE: u32 = 1 << 2;
/// Interrupt Vector Configuration: Coalescing Disable.
const COALESCING_DISABLE: u32 = 1 << 16;
/// All features that are there, and whether a namespace has its own value.
pub(crate) const ALL_FEATURES: [(u8, bool); 9] = [
    (feature::ARBITRATION, false),
    (feature::POWER_MANAGEMENT, false),
    (feature::TEMPERATURE_THRESHOLD, false),
    (feature::NUMBER_OF_QUEUES, false),
    (feature::INTERRUPT_COALESCING, false),
    (feature::INTERRUPT_VECTOR, false),
    (feature::ASYNC_EVENT_CONFIGURATION, false),
    (feature::COMMAND_SET_PROFILE, false),
    (feature::KEY_VALUE, true),
];
/// Temperature Threshold, TMPSEL: all sensors.
const ALL_SENSORS: u32 = 0xf;

/// Values that were set. None is kept over a reset.
#[derive(Default)]
pub(crate) struct Features {
    set: BTreeMap<Id, u32>,
}

/// A feature, and which of its values.
type Id = (u8, u16);

impl Features {
    /// What the host wants to be told of.
    pub(crate) fn wanted_events(&self) -> u32 {
        self.set.get(&(feature::ASYNC_EVENT_CONFIGURATION, 0)).copied().unwrap_or(0)
    }

    /// Interrupt Coalescing: completions that are worth an interrupt, and how long to wait for so many; `None` when
    /// there is none, for this vector or at all. (Never for the first, which is the admin queue's.)
    pub(crate) fn coalescing(&self, vector: u16) -> Option<(u32, Duration)> {
        let value = self.set.get(&(feature::INTERRUPT_COALESCING, 0)).copied().unwrap_or(0);
        let (threshold, time) = (value & 0xff, value >> 8 & 0xff);
        let vector_value = self.set.get(&(feature::INTERRUPT_VECTOR, vector)).copied().unwrap_or(0);
        let disabled = vector == 0 || vector_value & COALESCING_DISABLE != 0;
        (threshold > 0 && time > 0 && !disabled).then(|| (threshold + 1, Duration::from_micros(100) * time))
    }

    /// Key Value Configuration: whether a Delete of a key that does not exist fails.
    pub(crate) fn delete_must_find(&self, nsid: u32) -> bool {
        let set = self.set.get(&(feature::KEY_VALUE, nsid as u16));
        set.is_none_or(|value| value & feature::KEY_VALUE_EDNEK != 0)
    }

    /// Get Features: dword 0 of the completion.
    pub(crate) fn get(&self, get: &Feature, config: &Config) -> Result<u32, Status> {
        let id = identify(get, config)?;
        let default = default(id, config);
        match get.select {
            0 => Ok(self.set.get(&id).copied().unwrap_or(default)),
            // Nothing is saved, so what is saved is the default.
            1 | 2 => Ok(default),
            SELECT_CAPABILITIES => Ok(CHANGEABLE),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Set Features: dword 0 of the completion. `has_io`: there are I/O queues.
    pub(crate) fn set(&mut self, set: &Feature, config: &Config, has_io: bool) -> Result<u32, Status> {
        let id = identify(set, config)?;
        if set.save {
            return Err(Status::FEATURE_NOT_SAVEABLE);
        }
        // Base, section 5.1.25: FFFFFFFFh is all namespaces.
        if set.fid != feature::KEY_VALUE && !matches!(set.nsid, 0 | ALL) {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        check(set, config, has_io)?;
        if set.fid == feature::NUMBER_OF_QUEUES {
            // What is there is what the host gets, whether it asked for more or for less.
            return Ok(default(id, config));
        }
        self.set.insert(id, set.value);
        Ok(if set.fid == feature::COMMAND_SET_PROFILE { set.value } else { 0 })
    }
}

/// The feature that a command means; an error when there is none.
fn identify(command: &Feature, config: &Config) -> Result<Id, Status> {
    let part = match command.fid {
        feature::ARBITRATION
        | feature::POWER_MANAGEMENT
        | feature::NUMBER_OF_QUEUES
        | feature::INTERRUPT_COALESCING
        | feature::ASYNC_EVENT_CONFIGURATION
        | feature::COMMAND_SET_PROFILE => 0,
        // Of a namespace, whose identifier the caller has checked.
        feature::KEY_VALUE if !config.active_namespaces().is_empty() => command.nsid as u16,
        // THSEL and TMPSEL; only the composite temperature is there.
        feature::TEMPERATURE_THRESHOLD => match (command.value >> 20 & 3, command.value >> 16 & 0xf) {
            (kind @ 0..=1, 0 | ALL_SENSORS) => kind as u16,
            _ => return Err(Status::INVALID_FIELD),
        },
        feature::INTERRUPT_VECTOR => match command.value as u16 {
            vector if vector < config.vectors() => vector,
            _ => return Err(Status::INVALID_FIELD),
        },
        // No volatile write cache, no optional feature.
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok((command.fid, part))
}

fn default((fid, part): Id, config: &Config) -> u32 {
    let queues = u32::from(config.max_queues);
    match (fid, part) {
        (feature::NUMBER_OF_QUEUES, _) => NumberOfQueues { sq: queues, cq: queues }.to_dword(),
        (feature::TEMPERATURE_THRESHOLD, 0) => TEMPERATURE_LIMIT,
        (feature::INTERRUPT_VECTOR, vector) => u32::from(vector),
        (feature::KEY_VALUE, _) => feature::KEY_VALUE_EDNEK,
        _ => 0,
    }
}

/// Refuses values that a feature can not have.
fn check(set: &Feature, config: &Config, has_io: bool) -> Result<(), Status> {
    match set.fid {
        // Base, section 5.1.25.1.7.
        feature::NUMBER_OF_QUEUES if has_io => Err(Status::COMMAND_SEQUENCE_ERROR),
        feature::NUMBER_OF_QUEUES if set.value & 0xffff == 0xffff || set.value >> 16 == 0xffff => {
            Err(Status::INVALID_FIELD)
        }
        // There is one power state.
        feature::POWER_MANAGEMENT if set.value & 0x1f != 0 => Err(Status::INVALID_FIELD),
        // Base, section 5.1.25.1.17: the index of a combination that is there.
        feature::COMMAND_SET_PROFILE if (set.value & 0x1ff) as usize >= config.combinations().len() => {
            Err(Status::COMMAND_SET_COMBINATION_REJECTED)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(fid: u8, value: u32) -> Feature {
        Feature { fid, value, ..Feature::default() }
    }

    #[test]
    fn spec_base_5_1_25_number_of_queues_before_any_is_made() {
        let (mut f, config) = (Features::default(), Config { max_queues: 7, ..Config::default() });
        let want = feature(feature::NUMBER_OF_QUEUES, 0x0001_0001);
        assert_eq!(f.set(&want, &config, false), Ok(0x0006_0006));
        assert_eq!(f.get(&want, &config), Ok(0x0006_0006));
        assert_eq!(f.set(&want, &config, true), Err(Status::COMMAND_SEQUENCE_ERROR));
        let all = feature(feature::NUMBER_OF_QUEUES, u32::MAX);
        assert_eq!(f.set(&all, &config, false), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn spec_base_5_1_25_only_offered_combinations_can_be_chosen() {
        let (mut f, config) = (Features::default(), Config::default());
        assert_eq!(f.set(&feature(feature::COMMAND_SET_PROFILE, 0), &config, false), Ok(0));
        let other = feature(feature::COMMAND_SET_PROFILE, 1);
        assert_eq!(f.set(&other, &config, false), Err(Status::COMMAND_SET_COMBINATION_REJECTED));
    }

    #[test]
    fn spec_base_5_1_25_coalescing_needs_a_number_and_a_time() {
        let (mut f, config) = (Features::default(), Config::default());
        for (value, expected) in [(0, None), (0x0003, None), (0x0500, None), (0x0503, Some((4, 500)))] {
            assert_eq!(f.set(&feature(feature::INTERRUPT_COALESCING, value), &config, false), Ok(0));
            let expected = expected.map(|(count, micros)| (count, Duration::from_micros(micros)));
            assert_eq!((f.coalescing(1), f.coalescing(0)), (expected, None));
        }
        assert_eq!(f.set(&feature(feature::INTERRUPT_VECTOR, 1 << 16 | 1), &config, false), Ok(0));
        assert_eq!((f.coalescing(1), f.coalescing(2).is_some()), (None, true));
    }

    #[test]
    fn values_are_kept_apart_and_selected() {
        let (mut f, config) = (Features::default(), Config::default());
        assert_eq!(f.set(&feature(feature::TEMPERATURE_THRESHOLD, 300), &config, false), Ok(0));
        assert_eq!(f.get(&feature(feature::TEMPERATURE_THRESHOLD, 0), &config), Ok(300));
        assert_eq!(f.get(&feature(feature::TEMPERATURE_THRESHOLD, 1 << 20), &config), Ok(0));
        let default = Feature { select: 1, ..feature(feature::TEMPERATURE_THRESHOLD, 0) };
        assert_eq!(f.get(&default, &config), Ok(TEMPERATURE_LIMIT));
        let can = Feature { select: 3, ..default };
        assert_eq!(f.get(&can, &config), Ok(CHANGEABLE));
        let save = Feature { save: true, ..feature(feature::ARBITRATION, 0) };
        assert_eq!(f.set(&save, &config, false), Err(Status::FEATURE_NOT_SAVEABLE));
        assert_eq!(f.get(&feature(0x7f, 0), &config), Err(Status::INVALID_FIELD));
        assert_eq!(f.get(&feature(feature::INTERRUPT_VECTOR, 32), &config), Err(Status::INVALID_FIELD));
    }
}
