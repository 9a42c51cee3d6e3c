"""A second verifier of a log of receipts, of the standard library alone, signatures (RFC 8032) included.
  python3 verify.py log LOG CHECKPOINT KEY   what `operators receipts head --with-log LOG` wrote and printed
  python3 verify.py proof PROOF KEY          what `operators receipts prove` printed
  python3 verify.py vectors < VECTORS        a line for each: a root, or whether a proof holds"""
import base64, hashlib, json, sys
sha = lambda *parts: hashlib.sha256(b"".join(parts)).digest()
leaf, node = lambda text: sha(b"\0", text), lambda a, b: sha(b"\1", a, b)
un64, un64s = lambda text: base64.b64decode(text, validate=True), lambda texts: [un64(text) for text in texts]
def root(leaves):
    if len(leaves) < 2: return leaves[0] if leaves else sha()
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return node(root(leaves[:k]), root(leaves[k:]))
def walk(place, last, old, new, path):  # RFC 9162, 2.1.3.2 and 2.1.4.2
    for p in path:
        if last == 0: return None, None
        if place & 1 or place == last:
            old, new = node(p, old), node(p, new)
            while place and not place & 1: place, last = place >> 1, last >> 1
        else: new = node(new, p)
        place, last = place >> 1, last >> 1
    return (old, new) if last == 0 else (None, None)
def included(hash, place, size, path, expected):
    return place < size and walk(place, size - 1, hash, hash, path)[1] == expected
def consistent(m, old, n, new, path):
    if m > n or (m == 0 and old != sha()): return False
    if m in (0, n): return not path and (m == 0 or old == new)
    path = path if m & (m - 1) else [old] + path
    place, last = m - 1, n - 1
    while place & 1: place, last = place >> 1, last >> 1
    return bool(path) and walk(place, last, path[0], path[0], path[1:]) == (old, new)
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
def add(p, q):
    a, b, c, d = (p[1] - p[0]) * (q[1] - q[0]), (p[1] + p[0]) * (q[1] + q[0]), 2 * p[3] * q[3] * D, 2 * p[2] * q[2]
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P
def mul(s, p, q=(0, 1, 1, 0)):
    while s: q, p, s = (add(q, p) if s & 1 else q), add(p, p), s >> 1
    return q
def point(data):
    sign, y = divmod(int.from_bytes(data, "little"), 1 << 255)
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P: x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - x2) % P or (x == 0 and sign): return None
    x = P - x if x & 1 != sign else x
    return x, y, 1, x * y % P
B = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
def signed(key, text, sig):
    a, r, s = point(key), point(sig[:32]), int.from_bytes(sig[32:], "little")
    if len(sig) != 64 or not a or not r or s >= L: return False
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + text).digest(), "little") % L
    p, q = mul(s, B), add(r, mul(h, a))
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 == (p[1] * q[2] - q[1] * p[2]) % P
def checkpoint(note, key):
    text, _, lines = note.partition("\n\n")
    (origin, size, hash), text, key = text.split("\n"), text.encode() + b"\n", un64(key.strip().removeprefix("ed25519:"))
    sigs = [un64(line.split(" ")[2]) for line in lines.splitlines() if line.startswith(f"\u2014 {origin} ")]
    ours = [sig[4:] for sig in sigs if sig[:4] == sha(origin.encode(), b"\n\1", key)[:4]]
    if not any(signed(key, text, sig) for sig in ours): sys.exit("that key did not sign the checkpoint")
    return origin, int(size), un64(hash)
def proof(b, key):
    if b["proof"] == "consistency":
        (o, m, old), (o2, n, new) = checkpoint(b["from"], key), checkpoint(b["to"], key)
        return o == o2 and consistent(m, old, n, new, un64s(b["path"]))
    _, size, hash = checkpoint(b["checkpoint"], key)
    return included(leaf(b["receipt"].encode()), b["position"], size, un64s(b["path"]), hash)
def vector(v):
    if "leaves" in v: return base64.b64encode(root(un64s(v["leaves"]))).decode()
    if "old" in v: return consistent(v["m"], un64(v["old"]), v["n"], un64(v["new"]), un64s(v["path"]))
    return included(un64(v["leaf"]), v["place"], v["n"], un64s(v["path"]), un64(v["root"]))
read = lambda name: open(name, encoding="utf-8", newline="").read()
def main(what, *args):
    if what == "vectors": return print("\n".join(json.dumps(vector(json.loads(line))) for line in sys.stdin))
    if what == "proof": holds = proof(json.loads(read(args[0])), args[1])
    else:
        lines, (_, size, hash) = read(args[0]).split("\n")[:-1], checkpoint(read(args[1]), args[2])
        holds = len(lines) == size and root([leaf(line.encode()) for line in lines]) == hash
    sys.exit(print("holds" if holds else "does not hold") or (0 if holds else 5))
main(*sys.argv[1:])
