"""A second verifier of a log of receipts, of the standard library alone, signatures (RFC 8032) included.
  python3 verify.py log LOG CHECKPOINT KEY   what `operators receipts head --with-log LOG` wrote and printed
  python3 verify.py segment SEGMENT KEY      what `operators receipts prune` wrote
  python3 verify.py proof PROOF KEY          what `operators receipts prove` printed
  python3 verify.py vectors < VECTORS        a line for each: a root, or whether a proof holds"""
import base64, functools, hashlib, json, sys
sha, read = lambda *parts: hashlib.sha256(b"".join(parts)).digest(), lambda name: open(name, "rb").read().decode()
leaf, node = lambda text: sha(b"\0", text), lambda a, b: sha(b"\1", a, b)
un64, un64s = lambda text: base64.b64decode(text, validate=True), lambda texts: [un64(text) for text in texts]
def root(leaves, size=0, peaks=()):  # over a log of that size, which full subtrees stand for, and leaves behind it
    peaks = list(peaks)
    for place, top in enumerate(leaves, size):
        while place & 1: top, place = node(peaks.pop(), top), place >> 1
        peaks.append(top)
    return functools.reduce(lambda right, left: node(left, right), reversed(peaks or [sha()]))
def walk(place, last, old, new, path):  # RFC 9162, 2.1.3.2 and 2.1.4.2
    for p in path:
        if last == 0: return None, None
        if place & 1 or place == last:
            old, new = node(p, old), node(p, new)
            while place and not place & 1: place, last = place >> 1, last >> 1
        else: new = node(new, p)
        place, last = place >> 1, last >> 1
    return (old, new) if last == 0 else (None, None)
included = lambda hash, place, path, n, expected: place < n and walk(place, n - 1, hash, hash, path)[1] == expected
def consistent(m, old, n, new, path):
    if m == 0 or m >= n: return m <= n and not path and old == (new if m else sha())
    path = path if m & (m - 1) else [old] + path
    place, last = m - 1, n - 1
    while place & 1: place, last = place >> 1, last >> 1
    return bool(path) and walk(place, last, path[0], path[0], path[1:]) == (old, new)
P, L, D = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493, -121665 * pow(121666, -1, 2**255 - 19)
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
    return (x := P - x if x & 1 != sign else x), y, 1, x * y % P
B = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))
def signed(key, text, sig):
    a, r, s = point(key), point(sig[:32]), int.from_bytes(sig[32:], "little")
    if len(sig) != 64 or not a or not r or s >= L: return False
    p, q = mul(s, B), add(r, mul(int.from_bytes(hashlib.sha512(sig[:32] + key + text).digest(), "little") % L, a))
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 == (p[1] * q[2] - q[1] * p[2]) % P
def checkpoint(note, key):
    text, _, lines = note.partition("\n\n")
    (origin, size, hash), text, key = text.split("\n"), text.encode() + b"\n", un64(key.strip().removeprefix("ed25519:"))
    sigs = [un64(line.split(" ")[2]) for line in lines.splitlines() if line.startswith(f"\u2014 {origin} ")]
    ours = (signed(key, text, sig[4:]) for sig in sigs if sig[:4] == sha(origin.encode(), b"\n\1", key)[:4])
    if not any(ours): sys.exit("that key did not sign the checkpoint")
    return origin, int(size), un64(hash)
def proof(b, key):
    if b["proof"] == "consistency":
        (o, m, old), (o2, n, new) = checkpoint(b["from"], key), checkpoint(b["to"], key)
        return o == o2 and consistent(m, old, n, new, un64s(b["path"]))
    return included(leaf(b["receipt"].encode()), b["position"], un64s(b["path"]), *checkpoint(b["checkpoint"], key)[1:])
def vector(v):
    if "leaves" in v: return base64.b64encode(root(un64s(v["leaves"]))).decode()
    if "old" in v: return consistent(v["m"], un64(v["old"]), v["n"], un64(v["new"]), un64s(v["path"]))
    return included(un64(v["leaf"]), v["place"], un64s(v["path"]), v["n"], un64(v["root"]))
def once(lines):  # an attempt that was sent leaves one receipt of its proposal; refusals and duplicates have no fence
    told, twice = {}, 0
    for r in map(json.loads, lines):
        if r["kind"] != "proposal" or r["fence"] is None or r["outcome"] in ("refused", "deduplicated"): continue
        first = told.setdefault((r["idempotency_key"], r["generation"], r["attempt"]), r["receipt_id"])
        if first != r["receipt_id"]: twice = print(f"{r['receipt_id']} tells of the attempt that {first} tells of") or 1
    return not twice
def whole(lines, note, key, start=0, edge=b""):
    (_, size, hash), peaks = checkpoint(note, key), [edge[i:i + 32] for i in range(32, len(edge), 32)]
    same = start + len(lines) == size and root([leaf(line.encode()) for line in lines], start, peaks) == hash
    return same and once(lines)
segment = lambda head, lines, key: whole(lines, head["checkpoint"], key, head["from"], un64(head["edge"]))
def main(what, *args):
    if what == "vectors": return print("\n".join(json.dumps(vector(json.loads(line))) for line in sys.stdin))
    (first, *lines) = read(args[0]).split("\n")
    if what == "segment": holds = segment(json.loads(first), lines[:-1], args[1])
    elif what == "proof": holds = proof(json.loads(read(args[0])), args[1])
    else: holds = whole([first, *lines][:-1], read(args[1]), args[2])
    sys.exit(print("holds" if holds else "does not hold") or (0 if holds else 5))
main(*sys.argv[1:])
