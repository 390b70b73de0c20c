"""What JAX does before it joins a process group over several nodes."""

import socket
from types import SimpleNamespace

import pytest

from benchmarker import UserError

jax = pytest.importorskip("benchmarker_plugins.frameworks.jax")


def listening(port, *, shares):
    """A socket that listens at the port, if that is possible; the coordination service's shares it with others."""
    return socket.create_server(("127.0.0.1", port), reuse_port=shares)


def test_a_reserved_port_is_free_for_a_socket_that_shares_it_alone():
    with jax._reserved_port("127.0.0.1") as port:
        with pytest.raises(OSError, match="in use"):
            listening(port, shares=False)
        with listening(port, shares=True), socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


@pytest.mark.parametrize(
    ("own", "of_name", "message"),
    [
        ("127.0.0.1", "127.0.0.1", ""),
        ("192.0.2.7", "192.0.2.7", ""),
        ("192.0.2.7", "127.0.1.1", "the host's name box, which is 127.0.1.1 here; let it be 192.0.2.7"),
        ("192.0.2.7", None, "the host's name box, which is unknown here; let it be 192.0.2.7"),
    ],
)
def test_a_name_by_which_no_other_node_reaches_this_one_is_refused(monkeypatch, own, of_name, message):
    def resolved(*_, **__):
        if of_name is None:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (of_name, 0))]

    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    group = SimpleNamespace(own_host=own)
    if message:
        with pytest.raises(UserError, match=message):
            jax._refuse_unreachable(group)
    else:
        jax._refuse_unreachable(group)
