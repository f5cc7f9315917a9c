// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's reports: lines of the Test Anything Protocol, counted.

/// What a case came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Test cases that passed.
    pub passed: u32,
    /// Test cases that failed.
    pub failed: u32,
    /// Test cases that could not run here.
    pub skipped: u32,
    plan: Option<u32>,
}

impl Tally {
    /// Takes one line into account.
    pub fn line(&mut self, line: &str) {
        if let Some(last) = line.strip_prefix("1..") {
            self.plan = last.trim().parse().ok();
        } else if line.starts_with("not ok ") {
            self.failed += 1;
        } else if line.starts_with("ok ") {
            if line.contains(" # SKIP") {
                self.skipped += 1;
            } else {
                self.passed += 1;
            }
        }
    }

    /// Whether the plan, which is the guest's last line, has come.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.plan.is_some()
    }

    /// Why the case as a whole failed, beyond its failed tests.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        let seen = self.passed + self.failed + self.skipped;
        match self.plan {
            None => Some("the guest ended without its plan: it crashed or was cut off".to_owned()),
            Some(plan) if plan != seen => Some(format!("the guest planned {plan} tests and reported {seen}")),
            Some(0) => Some("the guest ran no test".to_owned()),
            Some(_) => None,
        }
    }

    /// Adds another case's tally.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(text: &str) -> Tally {
        let mut tally = Tally::default();
        text.lines().for_each(|line| tally.line(line));
        tally
    }

    #[test]
    fn counts_and_plan_agree() {
        let tally = tally("ok 1 - a\nnot ok 2 - b\n# why\nok 3 - c # SKIP no module\n1..3");
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 1));
        assert_eq!(tally.fault(), None);
    }

    #[test]
    fn a_missing_wrong_or_empty_plan_is_a_fault() {
        assert!(tally("ok 1 - a").fault().is_some());
        assert!(tally("ok 1 - a\n1..2").fault().is_some());
        assert!(tally("1..0").fault().is_some());
    }
}
