//! How a command ends, as the number a shell sees.

use std::process::{ExitCode, Termination};

use operators_kernel::Reason;

/// The exit codes; scripts branch on them, so they never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything is as it was asked.
    Ok,
    /// The command could not do its work: configuration, store, input, output.
    CouldNotRun,
    /// The command line itself is wrong.
    Usage,
    /// Something was refused.
    Refused,
    /// An action failed or is in doubt.
    Failed,
    /// The log of receipts, or a proof, does not hold.
    Unsound,
}

impl Exit {
    /// What one action's ending means for the whole command.
    pub(crate) fn of_reason(reason: Option<Reason>) -> Self {
        match reason {
            None => Self::Ok,
            Some(Reason::Failed | Reason::InDoubt) => Self::Failed,
            Some(_) => Self::Refused,
        }
    }

    /// The one that a caller must hear of: could not run, over failed, over refused.
    #[must_use]
    pub(crate) fn worst(self, other: Self) -> Self {
        if other.weight() > self.weight() {
            other
        } else {
            self
        }
    }

    fn weight(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Refused => 1,
            Self::Failed => 2,
            Self::CouldNotRun => 3,
            Self::Unsound => 4,
            Self::Usage => 5,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::CouldNotRun => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Failed => 4,
            Self::Unsound => 5,
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_a_contract() {
        let codes = [
            Exit::Ok,
            Exit::CouldNotRun,
            Exit::Usage,
            Exit::Refused,
            Exit::Failed,
            Exit::Unsound,
        ];
        assert_eq!(codes.map(Exit::code), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn could_not_run_outweighs_failed_outweighs_refused() {
        assert_eq!(Exit::Refused.worst(Exit::Failed), Exit::Failed);
        assert_eq!(Exit::Failed.worst(Exit::Refused), Exit::Failed);
        assert_eq!(Exit::Failed.worst(Exit::CouldNotRun), Exit::CouldNotRun);
        assert_eq!(Exit::Ok.worst(Exit::Refused), Exit::Refused);
    }
}
