"""The exact optimum of Elasticutor's equation 2 by a solver of integer programs, and random cases
small enough for it."""

import random

import numpy as np
from scipy.optimize import LinearConstraint, milp

from sojourn.placement.assignment import Need

Needs = dict[int, Need[int]]
Cores = dict[int, dict[int, int]]


def case(seed: int, machines: int = 3, executors: int = 4, each: int = 4) -> tuple[Needs, Cores]:
    """Random needs that fit, and a random assignment from before."""
    draw = random.Random(seed)
    total = machines * each
    free = [machine for machine in range(machines) for _ in range(each)]
    draw.shuffle(free)
    before: Cores = {e: {} for e in range(executors)}
    for executor in range(executors):
        for _ in range(draw.randint(1, max(1, total // executors))):
            machine = free.pop()
            before[executor][machine] = before[executor].get(machine, 0) + 1
    cores, left = [], total - executors
    for _ in range(executors):
        more = draw.randint(0, max(0, min(left, 2 * total // executors - 1)))
        cores.append(1 + more)
        left -= more
    needs = {
        e: Need(e % machines, cores[e], draw.uniform(0.5, 2.0), draw.expovariate(1 / 400e3))
        for e in range(executors)
    }
    return needs, before


def optimum(needs: Needs, room: dict[int, int], before: Cores, phi: float) -> float | None:
    """Equation 2 by a solver: x[j, K, i] cores on i if the executor j has K in all."""
    names, machines = list(needs), list(room)
    most = sum(room.values())
    columns: dict[tuple[str, int, int, int], int] = {}
    for j in names:
        for k in range(needs[j].cores, most + 1):
            columns["z", j, k, 0] = len(columns)
            for i in machines:
                columns["x", j, k, i] = len(columns)
        for i in machines:
            columns["y", j, 0, i] = len(columns)
    rows, low, high = [], [], []

    def add(entries: dict[tuple[str, int, int, int], float], least: float, top: float) -> None:
        row = np.zeros(len(columns))
        for key, value in entries.items():
            row[columns[key]] = value
        rows.append(row)
        low.append(least)
        high.append(top)

    for i in machines:
        add({key: 1.0 for key in columns if key[0] == "x" and key[3] == i}, 0, room[i])
    for j in names:
        need, had = needs[j], sum(before[j].values())
        counts = range(need.cores, most + 1)
        add({("z", j, k, 0): 1.0 for k in counts}, 1, 1)
        for k in counts:
            add({("x", j, k, i): 1.0 for i in machines} | {("z", j, k, 0): -float(k)}, 0, 0)
            if need.intensity > phi:
                away = {("x", j, k, i): 1.0 for i in machines if i != need.home}
                add(away, 0, 0)
        for i in machines:
            left = {("x", j, k, i): need.state / k for k in counts} | {("y", j, 0, i): 1.0}
            add(left, need.state * before[j].get(i, 0) / had, np.inf)
    whole = np.array([key[0] != "y" for key in columns], float)
    price = np.array([key[0] == "y" for key in columns], float)
    found = milp(price, constraints=LinearConstraint(np.array(rows), low, high), integrality=whole)
    return float(found.fun) if found.success else None
