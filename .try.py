import time
from penstock.run.calibration.measure import measure_costs
import statistics

t = time.time()
c = measure_costs(lambda *a: None)
print(time.time() - t, c.costs, c.notes)
for way in ("call", "ring", "socket"):
    for case in c.send[way]:
        s, r = (statistics.median(x[way][case]) * 1e6 for x in (c.send, c.receive))
        e = c.costs.at(way)
        print(
            way,
            case.size,
            case.rows,
            case.batches,
            f"{s:.1f} {e.send.cpu(1, case.rows, case.size) * 1e6:.1f}   {r:.1f} {e.receive.cpu(1, case.rows, case.size) * 1e6:.1f}",
            len(c.send[way][case]),
            [round(x * 1e6, 1) for x in c.send[way][case]],
        )
