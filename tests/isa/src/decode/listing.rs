// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of `llvm-objdump -d`, taken apart into names, operands and modifiers.

/// A line with an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Address, relative to where the object is loaded.
    pub addr: u64,
    /// Bytes.
    pub size: u64,
    /// Name.
    pub mnemonic: String,
    /// Operands and modifiers as text.
    pub rest: String,
    /// Symbol that it belongs to.
    pub function: String,
}

impl Line {
    /// As it stands in the listing.
    pub fn text(&self) -> String {
        format!("{} {}", self.mnemonic, self.rest).trim_end().to_owned()
    }
}

/// Reads all instructions.
pub fn parse(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut function = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|head| head.split_once('<')) {
            function = name.1.to_owned();
        } else if let Some((addr, size, mnemonic, rest)) = instruction(line) {
            lines.push(Line { addr, size, mnemonic, rest, function: function.clone() });
        }
    }
    lines
}

/// `<tab>NAME OPERANDS // ADDRESS: ENCODING <SYMBOL>`.
fn instruction(line: &str) -> Option<(u64, u64, String, String)> {
    let (text, place) = line.strip_prefix('\t')?.split_once("// ")?;
    let (addr, encoding) = place.split_once(": ")?;
    let addr = u64::from_str_radix(addr.trim(), 16).ok()?;
    let words = encoding.split_whitespace().take_while(|word| !word.starts_with('<')).count();
    let text = text.trim();
    let (mnemonic, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some((addr, 4 * words as u64, mnemonic.to_owned(), rest.trim().to_owned()))
}

/// Operands, and the modifiers behind them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields<'a> {
    /// What stands between commas.
    pub operands: Vec<&'a str>,
    /// `name:value` and single words.
    pub modifiers: Vec<&'a str>,
}

impl<'a> Fields<'a> {
    /// Takes the text behind the name apart.
    pub fn new(rest: &'a str) -> Self {
        let mut fields = Self::default();
        for part in split(rest, ',') {
            for word in split(part, ' ') {
                let word = word.trim();
                if word.is_empty() {
                } else if is_modifier(word) {
                    fields.modifiers.push(word);
                } else {
                    fields.operands.push(word);
                }
            }
        }
        fields
    }

    /// Whether a word stands among the modifiers.
    pub fn has(&self, word: &str) -> bool {
        self.modifiers.contains(&word)
    }

    /// Value of a modifier.
    pub fn value(&self, name: &str) -> Option<&'a str> {
        let value = |m: &&'a str| m.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
        self.modifiers.iter().find_map(value)
    }

    /// A modifier that is a list of up to so many small numbers.
    pub fn numbers<const N: usize>(&self, name: &str) -> Result<Option<[u8; N]>, String> {
        let Some(text) = self.value(name) else { return Ok(None) };
        let wrong = || format!("unknown {name}:{text}");
        let values = list(text).ok_or_else(wrong)?;
        let mut numbers = [0; N];
        if values.len() > N {
            return Err(wrong());
        }
        for (to, value) in numbers.iter_mut().zip(values) {
            *to = u8::try_from(value).map_err(|_| wrong())?;
        }
        Ok(Some(numbers))
    }
}

/// Splits where the separator stands outside of brackets.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            c if c == separator && depth == 0 => {
                parts.push(text.get(begin..at).unwrap_or_default());
                begin = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(begin..).unwrap_or_default());
    parts
}

fn is_modifier(word: &str) -> bool {
    const WORDS: [&str; 12] =
        ["sc0", "sc1", "nt", "glc", "slc", "dlc", "clamp", "gds", "lds", "tfe", "offen", "idxen"];
    WORDS.contains(&word)
        || word.starts_with("row_")
        || word.starts_with("wave_")
        || word.split_once(':').is_some_and(|(name, _)| !name.contains('['))
}

/// A whole number as the listing writes it.
pub fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as i64,
        None => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Whole numbers in brackets, as in `[0,1]`.
pub fn list(text: &str) -> Option<Vec<i64>> {
    text.strip_prefix('[')?.strip_suffix(']')?.split(',').map(integer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_listing() {
        let text = "\nk.co:\tfile format elf64-amdgpu\n\n0000000000001600 <ring>:\n\
            \tv_mov_b32_e32 v0, 1 // 000000001600: 7E000281\n\
            \tglobal_store_b32 v8, v1, s[22:23] offset:16 scope:SCOPE_SYS// 000000001604: EE074000 07000000 0000000C\n\
            \ts_cbranch_scc1 207 // 000000001610: BFA200CF <ring+0x370>\n\ts_endpgm // 000000001614: BF810000\n";
        let lines = parse(text);
        let of =
            |n: usize| (lines[n].addr, lines[n].size, lines[n].mnemonic.as_str(), lines[n].rest.as_str());
        assert_eq!(of(0), (0x1600, 4, "v_mov_b32_e32", "v0, 1"));
        assert_eq!(of(1), (0x1604, 12, "global_store_b32", "v8, v1, s[22:23] offset:16 scope:SCOPE_SYS"));
        assert_eq!(of(2), (0x1610, 4, "s_cbranch_scc1", "207"));
        assert_eq!((of(3), lines.len()), ((0x1614, 4, "s_endpgm", ""), 4));
        assert_eq!(lines[3].function, "ring");
    }

    #[test]
    fn operands_and_modifiers() {
        let fields = Fields::new("v0, v4 quad_perm:[1,0,3,2] row_mask:0xf bound_ctrl:1");
        assert_eq!(fields.operands, ["v0", "v4"]);
        assert_eq!(fields.value("quad_perm").and_then(list), Some(vec![1, 0, 3, 2]));
        assert!(fields.value("row").is_none());
        let fields = Fields::new("v[0:1], v2, s[10:11] offset:-8 sc0 sc1");
        assert_eq!((fields.operands.len(), fields.has("sc0"), fields.has("nt")), (3, true, false));
        assert_eq!(fields.value("offset").and_then(integer), Some(-8));
        assert_eq!(Fields::new("vmcnt(0) lgkmcnt(0)").operands, ["vmcnt(0)", "lgkmcnt(0)"]);
        assert_eq!(Fields::new("scope:SCOPE_SYS").operands.len(), 0);
        assert_eq!(Fields::new("s0, hwreg(HW_REG_IB_STS, 0, 32)").operands.len(), 2);
        assert_eq!(
            (integer("0xffffffff"), integer("-16"), integer("x")),
            (Some(0xffff_ffff), Some(-16), None)
        );
    }
}
