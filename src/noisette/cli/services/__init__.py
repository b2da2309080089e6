"""Commands that run or operate a service, or answer one."""
