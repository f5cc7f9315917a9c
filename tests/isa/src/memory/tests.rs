// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

const BASE: u64 = 0x1000;
const DOORBELL: u64 = 0x8000;

/// Memory of a device with a kernel of four blocks of one wave each.
fn memory(arch: Arch) -> Memory {
    let mut memory = Memory::new(arch);
    memory.map("memory", BASE, 4096, Kind::Shared);
    memory.map("doorbells", DOORBELL, 8, Kind::Registers);
    memory.map("constants", 0x9000, 8, Kind::Constant);
    memory.begin(4, 1);
    memory
}

/// The wave of a block.
fn wave(arch: Arch, block: u32) -> Viewer {
    let second = block % arch.second_level_caches() as u32;
    Viewer { domain: block, group: block, second, number: block, origin: Origin { block, wave: 0, addr: 4 } }
}

fn load(memory: &mut Memory, viewer: &Viewer, addr: u64, scope: Scope) -> u32 {
    let mut bytes = [0; 4];
    memory.load(viewer, addr, &mut bytes, scope).unwrap();
    u32::from_le_bytes(bytes)
}

/// Issues a store of a word.
fn issue(memory: &mut Memory, viewer: &Viewer, addr: u64, value: u32) -> Handle {
    let mut handles = Vec::new();
    memory.store(viewer, addr, &value.to_le_bytes(), &mut handles).unwrap();
    assert_eq!(handles.len(), 1);
    handles[0]
}

fn store(memory: &mut Memory, viewer: &Viewer, addr: u64, value: u32, scope: Scope) {
    let handle = issue(memory, viewer, addr, value);
    memory.perform(handle, scope);
}

/// A word as the controller reads it, and whether it read too early.
fn controller(memory: &mut Memory, addr: u64) -> (u32, bool) {
    let mut bytes = [0; 4];
    let before = memory.stale().len();
    memory.controller_read(addr, &mut bytes).unwrap();
    (u32::from_le_bytes(bytes), memory.stale().len() > before)
}

/// Everything that an acquire at system scope does.
fn acquire(memory: &mut Memory, viewer: &Viewer) {
    match memory.arch() {
        Arch::Gfx90a => memory.invalidate(viewer, Cache::InvalidateSecond),
        Arch::Gfx1100 => memory.invalidate(viewer, Cache::InvalidateMiddle),
        _ => {}
    }
    memory.invalidate(viewer, Cache::Invalidate(Scope::System));
}

#[test]
fn stages_of_a_store() {
    for arch in Arch::ALL {
        let mut memory = memory(arch);
        // Blocks 0 and 2 are behind the same second level cache everywhere.
        let (me, other, far) = (wave(arch, 0), wave(arch, 2), wave(arch, 1));
        let handle = issue(&mut memory, &me, BASE, 7);
        assert_eq!(load(&mut memory, &me, BASE, Scope::Wave), 7, "{arch}");
        assert_eq!(load(&mut memory, &other, BASE, Scope::System), 0, "{arch}: only issued");
        assert_eq!(controller(&mut memory, BASE), (0, true), "{arch}");
        memory.perform(handle, Scope::Wave);
        assert_eq!(load(&mut memory, &other, BASE, Scope::Wave), 0, "{arch}: the first level cache is older");
        assert_eq!(load(&mut memory, &other, BASE, Scope::Agent), 7, "{arch}");
        let alone = arch.second_level_caches() == 1;
        assert_eq!(load(&mut memory, &far, BASE, Scope::Agent) == 7, alone, "{arch}: another die");
        memory.invalidate(&other, Cache::Invalidate(Scope::Agent));
        let middle = arch == Arch::Gfx1100;
        assert_eq!(load(&mut memory, &other, BASE, Scope::Wave) == 7, !middle, "{arch}");
        assert_eq!(
            controller(&mut memory, BASE),
            if arch.writes_back() { (0, true) } else { (7, false) },
            "{arch}"
        );
        memory.write_back(0, Scope::Agent);
        assert_eq!(load(&mut memory, &far, BASE, Scope::Agent), 7, "{arch}");
        assert_eq!(controller(&mut memory, BASE).1, arch.writes_back(), "{arch}: not for the system");
        memory.write_back(0, Scope::System);
        assert_eq!(controller(&mut memory, BASE), (7, false), "{arch}");
        memory.end();
        let mut bytes = [0; 4];
        memory.read(BASE, &mut bytes).unwrap();
        assert_eq!(bytes, [7, 0, 0, 0], "{arch}");
    }
}

#[test]
fn scopes_of_stores() {
    for arch in Arch::ALL {
        let mut memory = memory(arch);
        let me = wave(arch, 0);
        store(&mut memory, &me, BASE, 1, Scope::System);
        let at_once = arch.stores_have_scope() || arch == Arch::Gfx1100;
        assert_eq!(controller(&mut memory, BASE).0 == 1, at_once, "{arch}");
        // A doorbell without scope does not get out where there are scopes.
        store(&mut memory, &me, DOORBELL, 3, Scope::Agent);
        assert_eq!(memory.take_rung(), !arch.stores_have_scope(), "{arch}");
        store(&mut memory, &me, DOORBELL, 4, Scope::System);
        assert_eq!(
            (memory.take_rung(), memory.take_rung(), memory.register(DOORBELL)),
            (true, false, Ok(4)),
            "{arch}"
        );
    }
}

#[test]
fn stores_to_a_place_stay_in_order() {
    for arch in Arch::ALL {
        let mut memory = memory(arch);
        let (me, other) = (wave(arch, 0), wave(arch, 2));
        let first = issue(&mut memory, &me, BASE, 1);
        let second = issue(&mut memory, &me, BASE, 2);
        memory.perform(second, Scope::Agent);
        memory.perform(first, Scope::Agent);
        assert_eq!(load(&mut memory, &other, BASE, Scope::Agent), 2, "{arch}");
        // Parts of words go over each other.
        let mut handles = Vec::new();
        memory.store(&me, BASE + 1, &[0xaa, 0xbb], &mut handles).unwrap();
        memory.store(&me, BASE + 3, &[0xcc, 0xdd], &mut handles).unwrap();
        assert_eq!(load(&mut memory, &me, BASE, Scope::Wave), 0xccbb_aa02, "{arch}");
        assert_eq!(load(&mut memory, &me, BASE + 2, Scope::Wave), 0x00dd_ccbb, "{arch}");
    }
}

#[test]
fn atomics_meet_at_the_device() {
    for arch in Arch::ALL {
        let mut memory = memory(arch);
        let handle = issue(&mut memory, &wave(arch, 0), BASE, 10);
        for block in 0..4 {
            let old = memory.atomic(&wave(arch, block), BASE, false, Scope::Agent, |old| old + 1).unwrap();
            assert_eq!(old, 10 + u64::from(block), "{arch}: its own store comes before");
        }
        memory.perform(handle, Scope::Wave);
        assert_eq!(load(&mut memory, &wave(arch, 3), BASE, Scope::Agent), 14, "{arch}");
        let old = memory.atomic(&wave(arch, 1), BASE + 8, true, Scope::Agent, |_| 0x1_0000_0002).unwrap();
        assert_eq!((old, load(&mut memory, &wave(arch, 1), BASE + 12, Scope::Agent)), (0, 1), "{arch}");
        assert!(memory.atomic(&wave(arch, 1), BASE + 4, true, Scope::Agent, |old| old).is_err(), "{arch}");
    }
}

#[test]
fn what_the_controller_wrote_must_be_acquired() {
    for arch in Arch::ALL {
        let mut memory = memory(arch);
        let me = wave(arch, 0);
        memory.controller_write(BASE, &5u32.to_le_bytes()).unwrap();
        assert_eq!(load(&mut memory, &me, BASE, Scope::System), 5, "{arch}");
        assert_eq!(load(&mut memory, &me, BASE, Scope::Wave), 0, "{arch}: caches are older");
        memory.invalidate(&me, Cache::Invalidate(Scope::Agent));
        assert_eq!(load(&mut memory, &me, BASE, Scope::Wave), 0, "{arch}: not far enough");
        acquire(&mut memory, &me);
        assert_eq!(load(&mut memory, &me, BASE, Scope::Wave), 5, "{arch}");
        assert_eq!(memory.load_scalar(BASE), Ok(0), "{arch}: scalar loads are for what does not change");
    }
}

#[test]
fn completions_are_torn_until_their_last_dword_was_acquired() {
    for arch in Arch::ALL {
        let mut memory = memory(arch);
        let (me, other) = (wave(arch, 0), wave(arch, 1));
        memory.controller_post(BASE, &[1; 16]).unwrap();
        let mut bytes = [9; 16];
        memory.load(&me, BASE, &mut bytes, Scope::System).unwrap();
        assert_eq!((bytes[..12] == [0; 12], bytes[12..] == [1; 4]), (true, true), "{arch}: {bytes:?}");
        // Somebody else's acquire does not help.
        acquire(&mut memory, &other);
        assert_eq!(load(&mut memory, &me, BASE, Scope::System), 0, "{arch}");
        acquire(&mut memory, &me);
        memory.load(&me, BASE, &mut bytes, Scope::Wave).unwrap();
        assert_eq!(bytes, [1; 16], "{arch}");
        assert_eq!(controller(&mut memory, BASE), (0x0101_0101, false), "{arch}");
    }
}

#[test]
fn what_is_written_back_late_goes_over_what_came_in_between() {
    let mut memory = memory(Arch::Gfx942);
    let me = wave(Arch::Gfx942, 0);
    store(&mut memory, &me, BASE, 1, Scope::Wave);
    memory.controller_write(BASE, &2u32.to_le_bytes()).unwrap();
    assert_eq!(controller(&mut memory, BASE), (2, false));
    memory.write_back(0, Scope::System);
    assert_eq!(controller(&mut memory, BASE), (1, false));
}

#[test]
fn what_is_not_there_can_not_be_reached() {
    let mut memory = memory(Arch::Gfx90a);
    let (me, mut handles) = (wave(Arch::Gfx90a, 0), Vec::new());
    assert!(memory.load(&me, BASE + 4094, &mut [0; 4], Scope::Wave).is_err());
    assert!(memory.store(&me, 0x9000, &[0; 4], &mut handles).is_err());
    assert!(memory.load(&me, 0x9000, &mut [0; 4], Scope::Wave).is_ok());
    assert!(
        memory.controller_write(DOORBELL, &[0; 4]).is_err() && memory.controller_read(0, &mut [0]).is_err()
    );
    assert!(memory.load(&me, u64::MAX, &mut [0; 4], Scope::Wave).is_err());
    assert_eq!(memory.load_scalar(BASE + 2), Err(Violation::Alignment(BASE + 2)));
    memory.unmap(0x9000);
    assert!(memory.load(&me, 0x9000, &mut [0; 4], Scope::Wave).is_err());
}

#[test]
fn what_a_wave_acquired_the_others_of_its_block_have_behind_a_barrier() {
    for arch in [Arch::Gfx1100, Arch::Gfx1201] {
        let mut memory = memory(arch);
        // Two blocks of two waves with caches of their own.
        memory.begin(2, 2);
        let of = |domain| Viewer { domain, group: domain / 2, ..wave(arch, domain) };
        let (me, sibling, stranger) = (of(0), of(1), of(2));
        memory.controller_write(BASE, &5u32.to_le_bytes()).unwrap();
        memory.invalidate(&sibling, Cache::Invalidate(Scope::Group));
        assert_eq!(load(&mut memory, &sibling, BASE, Scope::Wave), 0, "{arch}: nobody acquired it");
        acquire(&mut memory, &me);
        assert_eq!(load(&mut memory, &sibling, BASE, Scope::Wave), 0, "{arch}: its cache is older");
        memory.invalidate(&sibling, Cache::Invalidate(Scope::Group));
        assert_eq!(load(&mut memory, &sibling, BASE, Scope::Wave), 5, "{arch}");
        if arch == Arch::Gfx1201 {
            memory.invalidate(&stranger, Cache::Invalidate(Scope::Group));
            assert_eq!(load(&mut memory, &stranger, BASE, Scope::Wave), 0, "{arch}: another block");
        }
    }
}
