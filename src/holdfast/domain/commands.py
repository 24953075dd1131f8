"""Shell commands as rules see them: parsed, so that what looks alike is not taken for the same."""

NEVER_RUN = (
    "shutdown *", "poweroff *", "reboot *", "halt *", "mkfs *", "mkfs.ext4 *", "wipefs *",
    "rm -rf /", "rm -fr /", "rm -rf /*", "rm -rf --no-preserve-root *",
)  # fmt: skip
"""What no rule and no person can allow, unless the setting `never_run` says otherwise."""
