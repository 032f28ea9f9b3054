#!/usr/bin/env python3
"""A second implementation of handshake and frames, written from docs/protocol.md and slow: it
prints, as a C++ header, the bytes that the library has to produce from given keys, so that the
format cannot drift unseen. It needs nothing but Python; X25519, ChaCha20 and Poly1305 are those of
RFC 7748 and RFC 8439.

usage: reference.py OUTPUT.hpp
"""

import hashlib
import hmac
import pathlib
import struct
import sys

PRIME = 2**255 - 19


def x25519(scalar, point):
    k = int.from_bytes(scalar, "little") & ~7 & (2**255 - 1) | 2**254
    u = int.from_bytes(point, "little") & (2**255 - 1)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in range(254, -1, -1):
        bit = k >> t & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        x3, z3 = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, (aa - bb) * (aa + 121665 * (aa - bb)) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def rotate(value, bits):
    return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF


def chacha20_block(key, last_words):
    """last_words: the four words behind the key, counter and nonce in either split."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), *last_words]
    s = list(start)
    columns = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    diagonals = [(0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for a, b, c, d in (columns + diagonals) * 10:
        for x, y, z, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) & 0xFFFFFFFF
            s[z] = rotate(s[z] ^ s[x], bits)
    return struct.pack("<16I", *((x + y) & 0xFFFFFFFF for x, y in zip(s, start, strict=True)))


def block64(key, nonce, counter):
    """The original ChaCha20: counter and nonce of 64 bits each."""
    return chacha20_block(key, struct.unpack("<4I", struct.pack("<QQ", counter, nonce)))


def crypt64(key, nonce, data):
    pad = b"".join(block64(key, nonce, i) for i in range((len(data) + 63) // 64))
    return bytes(a ^ b for a, b in zip(data, pad, strict=False))


def poly1305(key, message):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for i in range(0, len(message), 16):
        total = (total + int.from_bytes(message[i : i + 16] + b"\1", "little")) * r % (2**130 - 5)
    return ((total + int.from_bytes(key[16:], "little")) % 2**128).to_bytes(16, "little")


def aead_encrypt(key, number, associated, plain):
    def block(counter):
        words = struct.unpack("<4I", struct.pack("<IIQ", counter, 0, number))
        return chacha20_block(key, words)

    pad = b"".join(block(i + 1) for i in range((len(plain) + 63) // 64))
    sealed = bytes(a ^ b for a, b in zip(plain, pad, strict=False))
    filled = [part + bytes(-len(part) % 16) for part in (associated, sealed)]
    sizes = struct.pack("<QQ", len(associated), len(sealed))
    return sealed + poly1305(block(0)[:32], b"".join(filled) + sizes)


class Noise:
    """The symmetric state of the Noise framework."""

    def __init__(self, name, prologue):
        self.h = self.ck = name.ljust(64, b"\0")
        self.mix_hash(prologue)

    def mix_hash(self, data):
        self.h = hashlib.blake2b(self.h + data).digest()

    def derive(self, data):
        extracted = hmac.digest(self.ck, data, "blake2b")
        first = hmac.digest(extracted, b"\1", "blake2b")
        return first, hmac.digest(extracted, first + b"\2", "blake2b")

    def mix_key(self, data):
        self.ck, key = self.derive(data)
        self.key, self.number = key[:32], 0

    def encrypt_and_hash(self, plain):
        sealed = aead_encrypt(self.key, self.number, self.h, plain)
        self.number += 1
        self.mix_hash(sealed)
        return sealed


def keyed_hash(key, label, data, size):
    return hashlib.blake2b(bytes([len(label)]) + label + data, key=key, digest_size=size).digest()


def public(private):
    return x25519(private, (9).to_bytes(32, "little"))


# The same values are in handshake_vectors_test.cpp.
INITIATOR, TARGET = bytes(range(1, 33)), bytes(range(101, 133))
INITIATOR_EPHEMERAL, TARGET_EPHEMERAL = bytes([0xE1] * 32), bytes([0xE2] * 32)
INSTANCE, TARGET_INSTANCE = bytes([0x11] * 16), bytes([0x22] * 16)
KEY = "prefill-0 \u00e9".encode()


def preamble(kind):
    return struct.pack("<IHBB", 0x4F49524D, 1, kind, 0)


def handshake():
    """hello, answer, confirmation, key forward, key backward."""
    target_key = public(TARGET)
    noise = Noise(b"Noise_IK_25519_ChaChaPoly_BLAKE2b", b"mori-io handshake" + struct.pack("<H", 1))
    noise.mix_hash(target_key)
    ephemeral = public(INITIATOR_EPHEMERAL)
    noise.mix_hash(ephemeral)
    noise.mix_key(x25519(INITIATOR_EPHEMERAL, target_key))
    sealed_key = noise.encrypt_and_hash(public(INITIATOR))
    noise.mix_key(x25519(INITIATOR, target_key))
    identity = struct.pack("<HHBBHHHQ", 1, 1, 2, 1, 3, 4, len(KEY), 7)
    identity += INSTANCE + TARGET_INSTANCE + KEY
    hello = preamble(1) + ephemeral + sealed_key
    hello += noise.encrypt_and_hash(identity.ljust(184, b"\0"))
    hello += keyed_hash(target_key, b"mori-io stamp", hello, 16)

    ephemeral = public(TARGET_EPHEMERAL)
    noise.mix_hash(ephemeral)
    noise.mix_key(x25519(TARGET_EPHEMERAL, public(INITIATOR_EPHEMERAL)))
    noise.mix_key(x25519(TARGET_EPHEMERAL, public(INITIATOR)))
    verdict = struct.pack("<iHBB", 0, 1, 1, 0) + TARGET_INSTANCE + struct.pack("<H", 0)
    answer = preamble(2) + ephemeral + noise.encrypt_and_hash(verdict.ljust(272, b"\0"))
    forward, backward = (key[:32] for key in noise.derive(b""))
    tag = keyed_hash(forward, b"mori-io confirmation", noise.h, 16)
    return hello, answer, preamble(3) + tag, forward, backward


def frame(key, encrypt, number, body, payload):
    """One frame of kind 1 whose body begins with a capability, and its payload."""
    frame_key, payload_mac, body_key, payload_key = (
        keyed_hash(key, b"mori-io " + label, b"", 32)
        for label in (b"frame keys", b"payload keys", b"bodies", b"payloads")
    )
    once = block64(frame_key, 0, number)
    header = struct.pack("<IIIBBH", len(body), len(payload), number, 1, 0x80, 0)
    if encrypt:
        body, payload = crypt64(body_key, number, body), crypt64(payload_key, number, payload)
    else:
        body = bytes(a ^ b for a, b in zip(body[:16], once[32:48], strict=True)) + body[16:]
    payload_once = block64(payload_mac, 0, number // 2)[number % 2 * 32 :][:32]
    sealed = header + body + poly1305(once[:32], header + body)
    return sealed + payload + poly1305(payload_once, payload)


def main():
    hello, answer, confirmation, forward, backward = handshake()
    body, payload = bytes(range(40)), bytes(i * 7 % 256 for i in range(150))
    values = {
        "hello": hello,
        "answer": answer,
        "confirmation": confirmation,
        "forward": forward,
        "backward": backward,
        # Over the end of a batch of 16 blocks, and both halves of a payload's block.
        "mac_frame_0": frame(forward, False, 0, body, payload),
        "mac_frame_33": frame(forward, False, 33, body, payload),
        "encrypted_frame_0": frame(backward, True, 0, body, payload),
        "encrypted_frame_33": frame(backward, True, 33, body, payload),
    }
    lines = ["// What reference.py computed.", "#pragma once", "namespace vectors {"]
    lines += [f'inline constexpr char {name}[] = "{data.hex()}";' for name, data in values.items()]
    pathlib.Path(sys.argv[1]).write_text("\n".join([*lines, "}  // namespace vectors", ""]))


if __name__ == "__main__":
    main()
