// SPDX-License-Identifier: MIT OR Apache-2.0
//! The architectures, and what differs between them.

use std::fmt;

/// An architecture that kernels are built for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Arch {
    /// MI200 series.
    Gfx90a,
    /// MI300 series.
    Gfx942,
    /// MI350 series.
    Gfx950,
    /// RDNA 3.
    Gfx1100,
    /// RDNA 4.
    Gfx1201,
}

impl Arch {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Gfx90a, Self::Gfx942, Self::Gfx950, Self::Gfx1100, Self::Gfx1201];

    /// Name, as compilers take it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gfx90a => "gfx90a",
            Self::Gfx942 => "gfx942",
            Self::Gfx950 => "gfx950",
            Self::Gfx1100 => "gfx1100",
            Self::Gfx1201 => "gfx1201",
        }
    }

    /// The architecture of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Lanes of a wave: kernels here are built for the native size.
    pub const fn lanes(self) -> usize {
        if self.is_cdna() {
            64
        } else {
            32
        }
    }

    /// Whether it is one of the CDNA family (gfx9), whose instructions and registers differ from RDNA's.
    pub const fn is_cdna(self) -> bool {
        matches!(self, Self::Gfx90a | Self::Gfx942 | Self::Gfx950)
    }

    /// Second level caches that blocks are spread over. The MI300 series has one for each die; two are enough to
    /// see what one of them does not know.
    pub const fn second_level_caches(self) -> usize {
        match self {
            Self::Gfx942 | Self::Gfx950 => 2,
            _ => 1,
        }
    }

    /// Whether stores are counted together with loads (`vmcnt`) instead of apart.
    pub const fn counts_stores_as_loads(self) -> bool {
        self.is_cdna()
    }

    /// Whether scalar loads are counted together with LDS accesses (`lgkmcnt`) instead of apart.
    pub const fn counts_scalar_as_lds(self) -> bool {
        !matches!(self, Self::Gfx1201)
    }

    /// Whether the second level cache keeps what is stored to host memory until it is written back.
    pub const fn writes_back(self) -> bool {
        !matches!(self, Self::Gfx1100)
    }

    /// Whether the scope of a store can be told from the instruction.
    pub const fn stores_have_scope(self) -> bool {
        matches!(self, Self::Gfx942 | Self::Gfx950 | Self::Gfx1201)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How far an access reaches: which caches it goes past.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// The wave: any cache may answer.
    Wave,
    /// The block.
    Group,
    /// The device (LLVM: agent).
    Agent,
    /// Everything, other devices included.
    System,
}
