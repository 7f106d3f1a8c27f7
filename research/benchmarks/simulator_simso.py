"""SimSo's event rate, for scale: periodic tasks under global EDF and here under rr.

    pip install simso && python research/benchmarks/simulator_simso.py

SimSo (pure Python, discrete events) simulates real-time task sets; an event is a
line of its log. The same task set runs here as periodic threads.
"""

from __future__ import annotations

import contextlib
import io
import time

from schedscope.simulator.runs.run import simulate
from schedscope.simulator.workloads.generators import periodic

TASKS, CPUS, SECONDS = 40, 4, 20


def simso_rate() -> tuple[int, float]:
    from simso.configuration import Configuration
    from simso.core import Model

    configuration = Configuration()
    configuration.duration = SECONDS * 1000 * configuration.cycles_per_ms
    for i in range(TASKS):
        configuration.add_task(
            name=f"t{i}", identifier=i, period=10, activation_date=0, wcet=0.9, deadline=10
        )
    for i in range(CPUS):
        configuration.add_processor(name=f"cpu{i}", identifier=i)
    configuration.scheduler_info.clas = "simso.schedulers.EDF"
    configuration.check_all()
    model = Model(configuration)
    begin = time.process_time()
    # Its EDF prints a line for every job.
    with contextlib.redirect_stdout(io.StringIO()):
        model.run_model()
    return len(model.logs), time.process_time() - begin


def our_rate() -> tuple[int, float]:
    load = periodic(TASKS, run="900us", sleep="9100us", times=SECONDS * 100)
    begin = time.process_time()
    trace = simulate(load, policy="rr", cpus=CPUS)
    rows = trace.info["rows"]
    events = rows["switches"] + rows["wakeups"] + rows["migrations"]
    return events, time.process_time() - begin


def main() -> None:
    for name, measure in (("schedscope rr", our_rate), ("SimSo EDF", simso_rate)):
        events, spent = measure()
        print(f"{name}: {events:,} events, {spent:.2f} CPU s, {events / spent:,.0f} events/s")


if __name__ == "__main__":
    main()
