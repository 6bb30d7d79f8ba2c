#!/usr/bin/env python3
"""What one run of a machine tells of others: the table "One run of yours" of docs/accuracy.md.

Each row of a file in turn finds the cpu_slowdown with which it would be predicted as it was measured; the file's other
rows are predicted with that. Predictions between the slowdowns that are tried are interpolated. Only rows that the
slowdown moves, by 5 % from the first to the last that is tried.

    tools/bazel build //tools/validate && tests/published/one_run.py bazel-bin/tools/validate/validate FILE...
"""
import bisect
import json
import statistics
import subprocess
import sys

TENTH = 0.1  # of what is usual: what CPUs hold up is what is saved there (tools/export/cpu_pace.h)
TRIED = [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4]
USUAL = TRIED.index(1)
NEAR, MOVES = 0.03, 1.05


def predict(validate, files, slowdown):
    """By file and line, predicted over measured."""
    command = [validate, "training", *files, "--rows", "--format=json", f"--cpu_slowdown={slowdown}"]
    tables = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {(t["file"], r["line"]): r["predicted_s"] / r["measured_s"]
            for t in tables for r in t["per_row"] if r.get("predicted_s") and r.get("measured_s")}


def between(row, slowdown):
    """The row's prediction there."""
    i = min(bisect.bisect_left(TRIED, slowdown, 1), len(TRIED) - 1)
    share = (slowdown - TRIED[i - 1]) / (TRIED[i] - TRIED[i - 1])
    return row[i - 1] * (1 - share) + row[i] * share


def found(row, most):
    """The slowdown at which the row is predicted as measured, up to `most` times either way; None: there is none."""
    if abs(row[USUAL] - 1) <= NEAR:
        return None
    for i in range(1, len(TRIED)):
        low, high = row[i - 1], row[i]
        if low <= 1 <= high and low < high:
            slowdown = TRIED[i - 1] + (TRIED[i] - TRIED[i - 1]) * (1 - low) / (high - low)
            return slowdown if 1 / most <= slowdown <= most else None
    return None


def show(name, files):
    """`files`: of each its pairs, as they are and with what the one says."""
    before = [statistics.mean(b for b, _ in pairs) for pairs in files]
    after = [statistics.mean(a for _, a in pairs) for pairs in files]
    better = sum(a < b for a, b in zip(after, before))
    print(f"| {name} | {len(files)} | {sum(map(len, files)):,} "
          f"| {100 * statistics.mean(before):.1f} % ({100 * statistics.median(before):.1f}) "
          f"| {100 * statistics.mean(after):.1f} % ({100 * statistics.median(after):.1f}) | {better} |")


def main(validate, *files):
    tried = [predict(validate, files, slowdown) for slowdown in TRIED]
    tenth = predict(validate, files, TENTH)
    tables = {}
    for (file, line), usual in tried[USUAL].items():
        row = [prediction[file, line] for prediction in tried]
        if row[-1] > MOVES * row[0]:
            tables.setdefault(file, []).append((1 - tenth[file, line] / usual, row))

    def pairs_of(share, most, ratio=False):
        of_files = []
        for rows in tables.values():
            pairs = []
            for held_up, one in rows:
                slowdown = found(one, most) if held_up >= share else None
                for _, other in rows:
                    if slowdown is None or other is one:
                        continue
                    after = other[USUAL] / one[USUAL] if ratio else between(other, slowdown)
                    pairs.append((abs(other[USUAL] - 1), abs(after - 1)))
            if pairs:
                of_files.append(pairs)
        return of_files

    print("| held up, factor | files | pairs | as they are (median of files) | with it (median) | better |")
    for share, most in ((0.1, 2.5), (0.2, 2.5), (0, 2.5), (0, 4)):
        show(f"{share:.0%} and more, up to {most}", pairs_of(share, most))
    show("10% and more, up to 2.5: the one's ratio in its place", pairs_of(0.1, 2.5, ratio=True))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
