"""Lines of tests/network_bed/run: predicted beside measured.

    report.py collectives RATE MEASURE.csv        a line for each all-reduce
    report.py plan RATE NAME SIMULATED.json TRACE.json...     the fastest of the runs' last steps
"""
import csv
import json
import sys


def line(rate, what, predicted, measured):
    error = 100 * (predicted - measured) / measured
    print(f"{rate:<10} {what:<22} {predicted:10.4f} s {measured:10.4f} s {error:+7.1f}%", flush=True)


def main(arguments):
    kind, rate = arguments[0], arguments[1]
    if kind == "collectives":
        for row in csv.DictReader(open(arguments[2])):
            if row["kind"] == "collective" and row["name"].startswith("all_reduce") and int(row["bytes"]) >= 1 << 20:
                line(rate, f"all_reduce {int(row['bytes']) >> 20} MiB", int(row["price_ns"]) / 1e9, int(row["time_ns"]) / 1e9)
        return
    predicted = json.load(open(arguments[3]))["step_time_s"]
    measured = min(json.load(open(trace))["otherData"]["makespan_ns"] / 1e9 for trace in arguments[4:])
    line(rate, arguments[2], predicted, measured)


main(sys.argv[1:])
