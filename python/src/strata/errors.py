"""The one exception that the tool raises for a person to read, and the exit statuses that it ends with.

The statuses of `strata run` are those of env(1) and timeout(1) in GNU coreutils, so that a script can tell a failure of the
tool from one of the program.
"""

EXIT_OWN_FAILURE = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_USAGE = 2
EXIT_COMPARE_FAILED = 1


class StrataError(Exception):
    """Something that the person can put right; the text says what, the value, and what is allowed."""

    def __init__(self, message: str, exit_status: int = EXIT_OWN_FAILURE):
        super().__init__(message)
        self.exit_status = exit_status
