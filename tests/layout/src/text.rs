// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documentation text: paragraphs, line breaks, and names as C knows them.

use xio_uapi::{CONSTANTS, LAYOUTS};

/// Source of the rules that all requests follow.
const UAPI: &str = include_str!("../../../uapi/src/lib.rs");

/// Paragraphs of a doc comment, each as one line.
pub fn paragraphs(doc: &[&str]) -> Vec<String> {
    doc.split(|line| line.trim().is_empty())
        .map(|lines| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "))
        .filter(|paragraph| !paragraph.is_empty())
        .collect()
}

/// The rules that all requests follow, from the documentation of the crate `xio-uapi`.
pub fn rules() -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    for line in UAPI.lines().filter_map(|line| line.strip_prefix("//!")) {
        match (line.strip_prefix(" * "), rules.last_mut()) {
            (Some(first), _) => rules.push(first.to_owned()),
            (None, Some(rule)) => *rule = format!("{rule} {}", line.trim()),
            (None, None) => {}
        }
    }
    rules
}

/// A space at which no line is broken.
pub const FIXED_SPACE: char = '\u{a0}';

/// Breaks a text into lines of at most `width` characters; words longer than that stay whole.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// What a name in backticks stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A constant, or a group of them (`IOMMU_*`).
    Constant,
    /// A structure.
    Structure,
    /// A field of any structure.
    Field,
    /// An errno value.
    Errno,
    /// Something else.
    Other,
}

/// What `name` stands for.
pub fn classify(name: &str) -> Name {
    let constant = match name.strip_suffix('*') {
        Some(group) => CONSTANTS.iter().any(|c| c.name.starts_with(group)),
        None => CONSTANTS.iter().any(|c| c.name == name),
    };
    if constant {
        Name::Constant
    } else if LAYOUTS.iter().any(|s| s.name == name) {
        Name::Structure
    } else if LAYOUTS.iter().any(|s| s.fields.iter().any(|f| f.name == name)) {
        Name::Field
    } else if name.starts_with('E') && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()) {
        Name::Errno
    } else {
        Name::Other
    }
}

/// Rewrites each part in backticks with `rewrite`, which gets it without them.
pub fn rewrite_code(text: &str, rewrite: impl Fn(&str) -> String) -> String {
    let part = |(i, part): (usize, &str)| if i % 2 == 1 { rewrite(part) } else { part.to_owned() };
    text.split('`').enumerate().map(part).collect()
}

/// A text as kernel-doc writes it.
pub fn kernel_doc(text: &str) -> String {
    rewrite_code(text, |code| match classify(code) {
        Name::Constant => format!("%XIO_{code}"),
        Name::Structure => format!("&struct {code}"),
        Name::Field => format!("@{code}"),
        Name::Errno => format!("%{code}"),
        Name::Other => format!("``{}``", prefixed(code).replace(' ', &FIXED_SPACE.to_string())),
    })
}

/// A text as the book writes it: constants with their prefix.
pub fn markdown(text: &str) -> String {
    rewrite_code(text, |code| match classify(code) {
        Name::Constant => format!("`XIO_{code}`"),
        _ => format!("`{}`", prefixed(code)),
    })
}

/// An expression with the C names of constants.
fn prefixed(code: &str) -> String {
    let word = |word| match classify(word) {
        Name::Constant => format!("XIO_{word}"),
        _ => word.to_owned(),
    };
    code.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_joined_lines() {
        assert_eq!(paragraphs(&[" a", " b", "", " c"]), ["a b", "c"]);
    }

    #[test]
    fn rules_are_found_whole() {
        let rules = rules();
        assert!(rules.len() >= 5, "{rules:?}");
        assert!(rules.iter().all(|rule| rule.ends_with('.')), "{rules:?}");
    }

    #[test]
    fn names_are_written_as_kernel_doc_has_them() {
        let text = "`EINVAL`, `size`, `xio_page`, `IOMMU_*`, `PAGE_SIZE`, `a == LIST_SHIFT`";
        let want = "%EINVAL, @size, &struct xio_page, %XIO_IOMMU_*, %XIO_PAGE_SIZE, ``a == XIO_LIST_SHIFT``";
        assert_eq!(kernel_doc(text).replace(FIXED_SPACE, " "), want);
    }

    #[test]
    fn lines_are_broken_at_the_width() {
        assert_eq!(wrap("aa bb cc dddddddd", 5), ["aa bb", "cc", "dddddddd"]);
    }
}
