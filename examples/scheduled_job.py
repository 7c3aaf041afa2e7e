"""A job that a schedule starts each morning: python examples/scheduled_job.py

A schedule enqueues a workflow at the times of a cron expression, and any worker fires it. Here a fake clock lets three days pass in a
moment. A time fires once, however many workers there are; times that passed while no worker was running fire once for all of them. In
production, declare the schedule when your program starts, and keep a worker running: everstep worker --import your_module --queue reports
"""

from __future__ import annotations

from datetime import UTC, datetime

import everstep
from everstep.testing.clock import FakeClock

SUNDAY = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
DAY = 24 * 3600


@everstep.step
def collect(city: str) -> int:
    return len(city)


@everstep.workflow
def report(city: str) -> str:
    """Write the report. `run.now()` is recorded: a resume tomorrow still writes the report of today."""
    return f"{everstep.current().now():%A}: {collect(city)} letters from {city}"


def main() -> None:
    with FakeClock(SUNDAY.timestamp()) as clock, everstep.open("memory://") as store:
        store.schedule("morning-report", report, "Berlin", cron="30 9 * * 1-5", zone="Europe/Berlin", queue="reports")
        (plan,) = store.schedules()
        print(f"next time: {plan.next:%A %H:%M} UTC")

        for days in (1, 1, 2):  # in the last round no worker runs for two days
            clock.advance(days * DAY)
            store.worker("reports").run(until_idle=True)
            newest = store.runs(workflow="report")[0]
            print(f"{newest.id}: {store.resume(newest.id).result}")

        store.unschedule("morning-report")
        print(f"{len(store.runs(workflow='report'))} runs for 4 days: the missed times fired once")


if __name__ == "__main__":
    main()
