"""Solves a mixed-integer program with HiGHS.

Arguments: the program in LP format, seconds. Standard input: values to start from, as JSON. Last line of standard output
(HiGHS may say something before): JSON with the values that are not 0, the proved bound, and the solver's state.
"""

import json
import sys

import highspy


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", seconds)
    highs.setOptionValue("mip_rel_gap", 1e-7)
    if highs.readModel(path) == highspy.HighsStatus.kError:
        raise SystemExit("HiGHS cannot read the program")
    names = list(highs.getLp().col_names_)
    start = json.load(sys.stdin)
    solution = highspy.HighsSolution()
    solution.col_value = [float(start.get(name, 0.0)) for name in names]
    highs.setSolution(solution)
    highs.run()
    info = highs.getInfo()
    values = {}
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        found = highs.getSolution().col_value
        values = {name: value for name, value in zip(names, found) if abs(value) > 1e-9}
    bound = info.mip_dual_bound
    answer = {
        "values": values,
        "bound": bound if abs(bound) < 1e30 else None,
        "state": highs.modelStatusToString(highs.getModelStatus()),
    }
    print()
    print(json.dumps(answer))


main()
