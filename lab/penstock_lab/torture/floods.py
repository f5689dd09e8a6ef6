"""Much of something: frames and files that were changed, connections of strangers, simulated jobs.

One trial is a block of many; its seed says which. Changed frames have no checksum of their own: the channel of a worker
refuses them with the error that is meant for it, or they can be read without leaving their bytes. Of those some are
unsound, such as texts that are no UTF-8 or a wrong count of nulls; they are counted. Changed files of a checkpoint have
checksums: each is refused, or holds what was written.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from penstock.checkpoint import manifests, parts
from penstock.checkpoint.contract import Manifest, Part
from penstock.deploy.line import sealed
from penstock.errors import CheckpointDamaged
from penstock.run.contract import Staged
from penstock.run.engine.epochs import TaskSnapshot
from penstock.run.transport.handshake import OPENING, PROOF_BYTES, WELCOME, Handshake
from penstock.run.transport.protocol import PeerGone
from penstock.run.transport.socket import SocketChannel
from penstock.run.transport.wire import Kind, WireFault, pack, unpack_batch, write_image
from penstock_lab.simulate.survival import survive_seed
from penstock_lab.torture.jobs import Arrival, Numbered
from penstock_lab.torture.processes import ports
from penstock_lab.torture.trial import Broken, Trial, Unmet

FRAMES, FILES, SIMULATED, STRANGERS = 50_000, 5_000, 250, 1_000  # of one trial
EDGES = 8
LOOKS_MAX = 10  # at a stream of one frame, until its end must have been told
CONNECT_SECONDS = 0.05  # on one machine; longer means that nobody takes the call
ANSWER_SECONDS = 1.0  # for which a stranger waits to hear whether the driver lets it in
START_SECONDS = 10.0  # the same, of a worker that waits for others
EARLY = 30  # strangers that come while workers wait for each other
FALSE_KEYS = 20  # one stranger in so many finishes its handshake, with a key of its own
TOLD_BYTES = max(sealed.GREETING.size, OPENING.size + PROOF_BYTES)  # that any caller may hear
LET_IN, BY_DRIVER, BY_WORKER, SILENT = "let in", "turned away by the driver", "turned away by a worker", "unanswered"
OPEN_MAX = 100  # strangers that stay for a while
RUBBISH = b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n"


def changed(choose: random.Random, data: bytes) -> bytes:
    """The bytes with one to three things wrong: bits, a piece removed, repeated or overwritten, another end."""
    found = bytearray(data)
    for _ in range(choose.randint(1, 3)):
        place = choose.randrange(len(found)) if found else 0
        match choose.randrange(6):
            case 0 | 1 if found:
                found[place] ^= 1 << choose.randrange(8)
            case 2:
                del found[place:]
            case 3:
                del found[place : place + choose.randint(1, 64)]
            case 4:
                found[place:place] = found[place : place + choose.randint(1, 64)]
            case _:
                odd = choose.choice((b"\0" * 8, b"\xff" * 8, (1 << 63).to_bytes(8, "little"), choose.randbytes(8)))
                found[place : place + len(odd)] = odd
    return bytes(found)


def batches() -> list[pa.RecordBatch]:
    """A batch of each kind of column."""
    numbers = pa.array([1, None, 3], pa.int64())
    words = pa.array(["a", None, "stream of words"])
    nested = pa.array([[1, 2], None, []], pa.list_(pa.int32()))
    struct = pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}])
    return [
        pa.record_batch({"n": numbers}),
        pa.record_batch({"w": words, "n": numbers}),
        pa.record_batch({"l": nested, "b": pa.array([True, None, False])}),
        pa.record_batch({"s": struct, "d": pa.array(["x", "y", "x"]).dictionary_encode()}),
    ]


def frames(trial: Trial) -> None:
    """Changed frames on a worker's own channel, from a peer that has proved itself."""
    known = []
    for batch in batches():
        image = write_image(batch).to_pybytes()
        known.append((batch.schema, pack(Kind.DATA, 3, batch.num_rows, 7, len(image)) + image))
    known.append((batches()[0].schema, pack(Kind.WATERMARK, 3, value=5)))
    choose, met = trial.choose, Counter[str]()
    for _ in range(FRAMES):
        schema, data = choose.choice(known)
        met[outcome(changed(choose, data) + data, schema)] += 1  # what lacks bytes takes those of the next one
    trial.row.figures |= {"tried": FRAMES, "refused": met["refused"], "unsound": met["unsound"], "cut": met["cut"]}


def outcome(data: bytes, schema: pa.Schema) -> str:
    """What a channel makes of a stream: `refused`, `sound` or `unsound` frames, or `cut` off before its first one."""
    raw, right = socket.socketpair()
    channel = SocketChannel(right, 0, EDGES)
    found = "cut"
    try:
        raw.sendall(data)
        raw.close()
        for _ in range(LOOKS_MAX):
            for frame in channel.receive():
                is_good = frame.kind != Kind.DATA or is_sound(unpack_batch(frame, schema))
                found = "sound" if is_good and found != "unsound" else "unsound"
    except WireFault:
        return "refused"
    except PeerGone:
        return found
    finally:
        channel.close()
    msg = f"the end of a changed stream was not told: {data.hex()[:1_000]}"
    raise Broken(msg)


def is_sound(batch: pa.RecordBatch) -> bool:
    """Read a batch to its last byte; whether it is also what it says, which nobody checks who knows its sender."""
    for column in batch.columns:
        column.take(pa.array(range(len(batch)), pa.int64()))  # touches every value
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def snapshot() -> tuple[bytes, bytes]:
    """A part and a manifest."""
    states = {"rows": os.urandom(200), "plain": b"x" * 300, "engine": b'{"watermarks": {"1": 5}}'}
    told = [TaskSnapshot(f"count/{task}", task == 1, states) for task in range(3)]
    part = b"".join(bytes(piece) for piece in parts.encode(told))
    staged = (Staged("out", "/data/out/_staging/part-00000-out-0a1b2c3d-1-00000003.parquet", 10, 1_000),)
    kept = Part(0, "parts/00000001/00000003-00000.part", len(part), "0" * 64, ("count/0",), (), staged)
    manifest = Manifest(3, 1, "counts", {"count": 3}, (kept,), False, {"count/0": 0}, 1_700_000_000_000_000)
    return part, manifests.encode(manifest)


def files(trial: Trial) -> None:
    """Changed parts and manifests, as a store reads them."""
    part, manifest = snapshot()
    readers: tuple[tuple[bytes, Callable[[bytes, str], object]], ...] = (
        (part, parts.decode),
        (manifest, manifests.decode),
    )
    choose, refused, same = trial.choose, 0, 0
    for _ in range(FILES):
        sound, read = choose.choice(readers)
        data = changed(choose, sound)
        try:
            found = read(data, "a changed file")
        except CheckpointDamaged:
            refused += 1
            continue
        if found != read(sound, "a sound file"):
            msg = f"a changed file was accepted: {data.hex()[:1_000]}"
            raise Broken(msg)
        same += 1
    trial.row.figures |= {"tried": FILES, "refused": refused, "same": same}


def simulated(trial: Trial) -> None:
    """Whole jobs under a seed that orders deliveries and crashes."""
    first = trial.row.seed * SIMULATED
    epochs = 0
    for seed in range(first, first + SIMULATED):
        try:
            epochs += survive_seed(seed)
        except Exception as error:
            msg = f"seed {seed}: {type(error).__name__}: {error}"
            raise Broken(msg) from error
    trial.row.figures |= {"tried": SIMULATED, "epochs": epochs}


def strangers(trial: Trial) -> None:
    """Connections of nobody that the job knows, to every port that it has open: silent, loud, or with a false key.

    Workers answer callers as long as they expect each other, so their doors are met before the last worker has come.
    """
    met = at_the_start(trial)
    job = trial.job
    trial.await_epoch(1)
    doors = [port for port in ports(os.getpid()) if to_driver(port) != SILENT]
    opening = Handshake(0, b"", first=True).opening
    words = (b"", RUBBISH, opening, opening[:7], os.urandom(200), b"\xff" * 64)
    open_now: list[socket.socket] = []
    targets: list[tuple[str, int]] = []
    with contextlib.ExitStack() as stack:
        for number in range(STRANGERS):
            if number % OPEN_MAX == 0:
                targets = [port for pid in (os.getpid(), *trial.pids()) for port in ports(pid)]
            if number % FALSE_KEYS == 0 and doors:
                met[to_driver(trial.choose.choice(doors))] += 1
                continue
            try:
                stranger = socket.create_connection(trial.choose.choice(targets), CONNECT_SECONDS)
            except OSError:
                met["no connection"] += 1
                continue
            stack.callback(stranger.close)
            met["reached"] += 1
            with contextlib.suppress(OSError):
                stranger.sendall(trial.choose.choice(words))
            open_now.append(stranger)
            if len(open_now) > OPEN_MAX:
                leaver = open_now.pop(0)
                met[LET_IN] += is_let_in(leaver)
                leaver.close()
        met[LET_IN] += sum(map(is_let_in, open_now))
    epoch = job.epoch
    trial.await_(lambda: job.epoch > epoch, "an epoch after the strangers")
    trial.gates.set(Numbered.GO)
    trial.finish()
    false = met[BY_DRIVER] + met[BY_WORKER]
    trial.row.figures |= {"tried": STRANGERS, "not_taken": met["no connection"], "false_keys": false}
    trial.row.figures |= {"accepted": met[LET_IN], "ports": len(set(targets))}
    trial.note(", ".join(f"{what}: {count}" for what, count in sorted(met.items())))
    if met[LET_IN]:
        msg = f"{met[LET_IN]} strangers were let in"
        raise Broken(msg)
    if job.recoveries:
        msg = f"strangers made the job recover: {job.notes}"
        raise Broken(msg)
    if met["reached"] < STRANGERS // 2 or not met[BY_DRIVER] or not met[BY_WORKER]:
        msg = f"too few strangers were heard: {dict(met)}"
        raise Unmet(msg)


def at_the_start(trial: Trial) -> Counter[str]:
    """Begin the job, with strangers that show workers a false key while these wait for the last of them."""
    trial.gates.set(Arrival.WAITS)
    job = trial.begin_beside()
    held = f"{Arrival.WAITS}-held"
    trial.await_(lambda: bool(trial.gates.standing(held)) and bool(trial.roll.hellos), "a hello while another waits")
    known = [(hello.host, hello.port) for hello in list(trial.roll.hellos.values())]
    with ThreadPoolExecutor(EARLY) as threads:
        answers = [threads.submit(to_worker, trial.choose.choice(known)) for _ in range(EARLY)]
        trial.gates.lift(held)
        trial.await_(lambda: job.status == "running", "the job's start")
        return Counter(answer.result() for answer in answers)


def to_driver(address: tuple[str, int]) -> str:
    """What comes of a false key at the driver's door; it proves itself to those alone who have proved themselves."""
    try:
        line = sealed.open_line(address, secrets.token_bytes(sealed.KEY_BYTES), 0, "talk", ANSWER_SECONDS)
    except (sealed.LineEnded, ConnectionResetError):
        return BY_DRIVER
    except sealed.LineBroken:
        return LET_IN  # it has given its proof
    except OSError:
        return SILENT  # another door of the same process
    line.break_off()
    return LET_IN


def to_worker(address: tuple[str, int]) -> str:
    """What comes of a false key at a worker's door; it welcomes those alone who have proved themselves."""
    one = Handshake(0, secrets.token_bytes(sealed.KEY_BYTES), first=True)
    with contextlib.suppress(OSError), socket.create_connection(address, START_SECONDS) as stranger:
        stranger.sendall(one.opening)
        theirs = heard(stranger, OPENING.size)
        if len(theirs) < OPENING.size:
            return SILENT
        stranger.sendall(one.receive(theirs))
        return LET_IN if len(heard(stranger, PROOF_BYTES + len(WELCOME))) > PROOF_BYTES else BY_WORKER
    return SILENT


def heard(stranger: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer where the other end closes or falls silent."""
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < size and (data := stranger.recv(size - len(found))):
            found += data
    return found


def is_let_in(stranger: socket.socket) -> bool:
    """Whether more has come than every caller is told: a greeting, or an opening and a proof."""
    stranger.settimeout(0.0)
    return len(heard(stranger, TOLD_BYTES + 1)) > TOLD_BYTES


TRIALS: Mapping[str, Callable[[Trial], None]] = {
    "mutated-frames": frames,
    "mutated-files": files,
    "simulation": simulated,
    "strangers": strangers,
}
