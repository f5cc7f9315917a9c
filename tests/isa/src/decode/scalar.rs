// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading scalar instructions.

use super::compare::{compare, Compare};
use super::listing::{integer, Fields};
use super::operand::{Operand, Width};
use super::reader::Reader;
use super::scalar_table::{form, Form};
use super::wait::{wait, Wait};
use crate::arch::Arch;

/// A scalar instruction.
#[derive(Clone, Debug)]
pub enum Scalar {
    /// Computes.
    Form {
        /// What.
        form: Form,
        /// Where the result goes.
        to: Operand,
        /// Of what.
        from: [Operand; 2],
    },
    /// Computes with floating-point numbers of 32 bits, or to or from them.
    Float {
        /// What.
        function: fn(u32, u32, u32) -> u32,
        /// Where the result goes.
        to: Operand,
        /// Of what.
        from: [Operand; 3],
    },
    /// Compares into the condition code.
    Compare {
        /// How.
        compare: Compare,
        /// What.
        from: [Operand; 2],
    },
    /// Whether a bit has a value, into the condition code.
    CompareBit {
        /// Of this.
        from: Operand,
        /// Which.
        bit: Operand,
        /// Width of what the bit is of.
        width: Width,
        /// The value.
        value: bool,
    },
    /// Keeps the execution mask and changes it.
    SaveExec {
        /// New mask of operand and old mask.
        function: fn(u64, u64) -> u64,
        /// Where the old mask goes.
        to: Operand,
        /// Operand.
        from: Operand,
    },
    /// Address of the next instruction.
    GetPc {
        /// Where it goes.
        to: Operand,
    },
    /// Goes to an address; keeps that of the next instruction.
    Jump {
        /// Where the next instruction's address goes.
        link: Operand,
        /// Where to.
        from: Operand,
    },
    /// Goes somewhere else if a condition holds; keeps the address of the next instruction.
    Branch {
        /// When.
        condition: Condition,
        /// Distance from the next instruction in dwords.
        distance: i16,
        /// Where the next instruction's address goes.
        link: Operand,
    },
    /// The clock, as a load.
    Clock {
        /// Where it goes.
        to: Operand,
        /// The clock of constant rate, not the one of the shader.
        steady: bool,
        /// It is asked for by a message.
        message: bool,
    },
    /// The shader's clock.
    Cycles {
        /// Where it goes.
        to: Operand,
        /// First bit.
        shift: u32,
        /// Bits.
        bits: u32,
    },
    /// Loads consecutive registers.
    Load {
        /// The first.
        to: Operand,
        /// How many.
        count: u8,
        /// Address.
        base: Operand,
        /// Added to it.
        offset: Operand,
        /// Added to it.
        immediate: i64,
    },
    /// Forgets what the scalar cache holds.
    Invalidate,
    /// Waits for so many units of 64 clocks.
    Sleep(u32),
    /// All waves of the block meet.
    Barrier,
    /// Tells the others that the wave came to the barrier.
    Signal,
    /// Waits for the others at the barrier.
    AwaitSignal,
    /// Waits for memory.
    Wait(Wait),
    /// The wave is done.
    End,
    /// The wave gives up.
    Trap,
    /// Only matters for speed.
    Nothing,
}

/// When a branch is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// Always.
    Always,
    /// Condition code has this value.
    Scc(bool),
    /// Whether no lane is active has this value.
    ExecZero(bool),
    /// Whether `vcc` is zero has this value.
    VccZero(bool),
}

/// Reads a scalar instruction; `Ok(None)` when there is none of that name.
pub fn scalar(arch: Arch, name: &str, fields: &Fields) -> Result<Option<Scalar>, String> {
    let reader = Reader { arch, fields };
    if let Some(found) = reader.flow(name)? {
        return Ok(Some(found));
    }
    if let Some(found) = reader.memory(name)? {
        return Ok(Some(found));
    }
    reader.compute(name)
}

impl Reader<'_> {
    fn number(&self, n: usize) -> Result<i64, String> {
        let text = self.text(n)?;
        integer(text).ok_or_else(|| format!("unknown number {text}"))
    }

    fn mask_width(&self, name: &str) -> Result<Width, String> {
        let wide = name.ends_with("b64");
        if wide == self.arch.is_cdna() {
            Ok(if wide { Width::Wide } else { Width::Word })
        } else {
            Err("a mask of the other wave size".into())
        }
    }

    fn branch(&self, condition: Condition, at: usize, link: Operand) -> Result<Scalar, String> {
        // The listing writes the 16 bits without a sign.
        Ok(Scalar::Branch { condition, distance: self.number(at)? as u16 as i16, link })
    }

    fn flow(&self, name: &str) -> Result<Option<Scalar>, String> {
        let null = Operand::Null;
        Ok(Some(match name {
            "s_nop"
            | "s_clause"
            | "s_delay_alu"
            | "s_set_inst_prefetch_distance"
            | "s_inst_prefetch"
            | "s_code_end"
            | "s_wait_alu"
            | "s_waitcnt_depctr"
            | "s_setprio"
            | "s_wait_expcnt"
            | "s_wait_samplecnt"
            | "s_wait_bvhcnt"
            | "s_icache_inv"
            | "s_ttracedata"
            | "s_denorm_mode"
            | "s_round_mode"
            | "s_version" => Scalar::Nothing,
            // Gives registers back before the end.
            "s_sendmsg" if self.text(0)? == "sendmsg(MSG_DEALLOC_VGPRS)" => Scalar::Nothing,
            "s_endpgm" => Scalar::End,
            "s_trap" | "s_sethalt" | "s_endpgm_saved" => Scalar::Trap,
            "s_branch" => self.branch(Condition::Always, 0, null)?,
            "s_cbranch_scc0" => self.branch(Condition::Scc(false), 0, null)?,
            "s_cbranch_scc1" => self.branch(Condition::Scc(true), 0, null)?,
            "s_cbranch_execz" => self.branch(Condition::ExecZero(true), 0, null)?,
            "s_cbranch_execnz" => self.branch(Condition::ExecZero(false), 0, null)?,
            "s_cbranch_vccz" => self.branch(Condition::VccZero(true), 0, null)?,
            "s_cbranch_vccnz" => self.branch(Condition::VccZero(false), 0, null)?,
            "s_call_b64" => self.branch(Condition::Always, 1, self.operand(0, Width::Wide)?)?,
            "s_getpc_b64" => Scalar::GetPc { to: self.operand(0, Width::Wide)? },
            "s_setpc_b64" => Scalar::Jump { link: null, from: self.operand(0, Width::Wide)? },
            "s_swappc_b64" => {
                Scalar::Jump { link: self.operand(0, Width::Wide)?, from: self.operand(1, Width::Wide)? }
            }
            "s_sleep" => Scalar::Sleep(self.number(0)? as u32),
            "s_barrier" => Scalar::Barrier,
            "s_barrier_signal" if self.number(0)? == -1 => Scalar::Signal,
            "s_barrier_wait" if self.number(0)? as u16 == u16::MAX => Scalar::AwaitSignal,
            _ if name.starts_with("s_wait") => return Ok(wait(name, self.fields)?.map(Scalar::Wait)),
            _ => return Ok(None),
        }))
    }

    fn memory(&self, name: &str) -> Result<Option<Scalar>, String> {
        if let Some(kind) = name.strip_prefix("s_load_") {
            let count = match kind {
                "dword" | "b32" => 1,
                "dwordx2" | "b64" => 2,
                "b96" => 3,
                "dwordx4" | "b128" => 4,
                "dwordx8" | "b256" => 8,
                "dwordx16" | "b512" => 16,
                _ => return Ok(None),
            };
            let immediate = self.fields.value("offset").map_or(Some(0), integer).ok_or("unknown offset")?;
            return Ok(Some(Scalar::Load {
                to: self.operand(0, Width::Word)?,
                count,
                base: self.operand(1, Width::Wide)?,
                offset: self.operand(2, Width::Word)?,
                immediate,
            }));
        }
        Ok(Some(match name {
            "s_memtime" => Scalar::Clock { to: self.operand(0, Width::Wide)?, steady: false, message: false },
            "s_memrealtime" => {
                Scalar::Clock { to: self.operand(0, Width::Wide)?, steady: true, message: false }
            }
            "s_sendmsg_rtn_b64" if self.text(1)? == "sendmsg(MSG_RTN_GET_REALTIME)" => {
                Scalar::Clock { to: self.operand(0, Width::Wide)?, steady: true, message: true }
            }
            "s_getreg_b32" => {
                let to = self.operand(0, Width::Word)?;
                match self.text(1)? {
                    "hwreg(HW_REG_SHADER_CYCLES, 0, 20)" => Scalar::Cycles { to, shift: 0, bits: 20 },
                    "hwreg(HW_REG_SHADER_CYCLES_LO)" => Scalar::Cycles { to, shift: 0, bits: 32 },
                    "hwreg(HW_REG_SHADER_CYCLES_HI)" => Scalar::Cycles { to, shift: 32, bits: 32 },
                    other => return Err(format!("unknown register {other}")),
                }
            }
            "s_dcache_inv" => Scalar::Invalidate,
            _ => return Ok(None),
        }))
    }

    /// RDNA 4's scalar floating-point instructions; of `s_fmac_f32` the destination is the last operand.
    fn float(&self, name: &str) -> Result<Option<Scalar>, String> {
        const fn f(bits: u32) -> f32 {
            f32::from_bits(bits)
        }
        let (sources, function): (_, fn(u32, u32, u32) -> u32) = match name {
            "s_cvt_f32_u32" => (1, |a, _, _| (a as f32).to_bits()),
            "s_cvt_f32_i32" => (1, |a, _, _| (a as i32 as f32).to_bits()),
            "s_cvt_u32_f32" => (1, |a, _, _| f(a) as u32),
            "s_cvt_i32_f32" => (1, |a, _, _| f(a) as i32 as u32),
            "s_trunc_f32" => (1, |a, _, _| f(a).trunc().to_bits()),
            "s_floor_f32" => (1, |a, _, _| f(a).floor().to_bits()),
            "v_s_rcp_f32" => (1, |a, _, _| (1.0 / f(a)).to_bits()),
            "s_add_f32" => (2, |a, b, _| (f(a) + f(b)).to_bits()),
            "s_sub_f32" => (2, |a, b, _| (f(a) - f(b)).to_bits()),
            "s_mul_f32" => (2, |a, b, _| (f(a) * f(b)).to_bits()),
            "s_fmac_f32" => (2, |a, b, d| f(a).mul_add(f(b), f(d)).to_bits()),
            // The constant stands in the middle of the one and at the end of the other.
            "s_fmamk_f32" | "s_fmaak_f32" => (3, |a, b, c| f(a).mul_add(f(b), f(c)).to_bits()),
            _ => return Ok(None),
        };
        let to = self.operand(0, Width::Word)?;
        let mut from = [to; 3];
        for (n, operand) in from.iter_mut().enumerate().take(sources) {
            *operand = self.operand(1 + n, Width::Word)?;
        }
        Ok(Some(Scalar::Float { function, to, from }))
    }

    fn compute(&self, name: &str) -> Result<Option<Scalar>, String> {
        if let Some((change, _)) = name.split_once("_saveexec_") {
            let function: fn(u64, u64) -> u64 = match change {
                "s_and" => |a, exec| a & exec,
                "s_or" => |a, exec| a | exec,
                "s_xor" => |a, exec| a ^ exec,
                "s_andn2" | "s_and_not1" => |a, exec| a & !exec,
                "s_orn2" | "s_or_not1" => |a, exec| a | !exec,
                "s_andn1" | "s_and_not0" => |a, exec| !a & exec,
                "s_orn1" | "s_or_not0" => |a, exec| !a | exec,
                _ => return Ok(None),
            };
            let width = self.mask_width(name)?;
            let (to, from) = (self.operand(0, width)?, self.operand(1, width)?);
            return Ok(Some(Scalar::SaveExec { function, to, from }));
        }
        let bit = |prefix, value| name.strip_prefix(prefix).map(|width| (width, value));
        if let Some((width, value)) = bit("s_bitcmp0_", false).or_else(|| bit("s_bitcmp1_", true)) {
            let width = if width == "b64" { Width::Wide } else { Width::Word };
            let (from, bit) = (self.operand(0, width)?, self.operand(1, Width::Word)?);
            return Ok(Some(Scalar::CompareBit { from, bit, width, value }));
        }
        for prefix in ["s_cmp_", "s_cmpk_"] {
            if let Some(compare) = name.strip_prefix(prefix).and_then(compare) {
                let mut from = [self.operand(0, compare.width)?, self.operand(1, compare.width)?];
                if let ("s_cmpk_", Operand::Constant(value)) = (prefix, from[1]) {
                    let value =
                        if name.ends_with("i32") { value as u16 as i16 as u64 } else { value & 0xffff };
                    from[1] = Operand::Constant(value & 0xffff_ffff);
                }
                return Ok(Some(Scalar::Compare { compare, from }));
            }
        }
        if let Some(float) = self.float(name)? {
            return Ok(Some(float));
        }
        let Some(form) = form(name) else { return Ok(None) };
        let to = self.operand(0, form.result)?;
        let mut from = [Operand::Constant(0); 2];
        let first = usize::from(!form.accumulates);
        for (n, (operand, width)) in from.iter_mut().zip(form.widths).enumerate().take(form.sources) {
            *operand = if n == 0 && form.accumulates { to } else { self.operand(first + n, width)? };
        }
        Ok(Some(Scalar::Form { form, to, from }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arch: Arch, name: &str, rest: &str) -> Scalar {
        scalar(arch, name, &Fields::new(rest)).unwrap().unwrap()
    }

    #[test]
    fn jumps_and_others() {
        let Scalar::Branch { distance, .. } = read(Arch::Gfx90a, "s_branch", "65526") else { panic!() };
        assert_eq!(distance, -10);
        assert!(matches!(read(Arch::Gfx1201, "s_barrier_signal", "-1"), Scalar::Signal));
        assert!(matches!(read(Arch::Gfx1201, "s_barrier_wait", "0xffff"), Scalar::AwaitSignal));
        assert!(scalar(Arch::Gfx90a, "s_and_saveexec_b32", &Fields::new("s0, vcc_lo")).is_err());
        assert!(scalar(Arch::Gfx90a, "s_frobnicate", &Fields::new("s0")).unwrap().is_none());
        let Scalar::Form { from, .. } = read(Arch::Gfx90a, "s_addk_i32", "s3, 0xffff") else { panic!() };
        assert_eq!(from, [Operand::Scalar(3), Operand::Constant(0xffff)]);
    }
}
