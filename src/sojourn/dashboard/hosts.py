"""Names and addresses of hosts. Used by the server and by the guard before it."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def name_in(host: str) -> str:
    """The name or address in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") <= 1 else host


def is_address(name: str) -> bool:
    """Whether it is an address rather than a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
