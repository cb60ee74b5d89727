#!/usr/bin/env python3
"""Writes texts/array.txt: a request for a JSON array and the array, of records drawn from a seed.

    benchmarks/text_array.py > benchmarks/texts/array.txt
"""

import json
import random

TOWNS = ["Arden", "Brackwater", "Colm", "Dunmere", "Eastry", "Fallow Hill", "Garth", "Hollin",
         "Isley", "Kestle", "Lowmoor", "Marram", "Northwick", "Orrell"]
SKIES = ["clear", "cloudy", "fog", "light rain", "overcast", "showers", "snow"]
RECORDS = 26


def record(number, draw):
    warmest = round(draw.uniform(2.0, 24.0), 1)
    return {
        "station": f"{draw.choice(TOWNS)} {draw.choice(['North', 'South', 'Harbour', 'Mill'])}",
        "id": 4100 + 7 * number,
        "date": f"2026-{draw.randint(3, 10):02d}-{draw.randint(1, 28):02d}",
        "temperature": {"min": round(warmest - draw.uniform(2.0, 9.0), 1), "max": warmest},
        "rain_mm": round(max(0.0, draw.gauss(2.0, 4.0)), 1),
        "sky": draw.choice(SKIES),
        "verified": draw.random() < 0.8,
    }


def main():
    draw = random.Random(4)
    records = [record(number, draw) for number in range(RECORDS)]
    print("Give me the readings of all weather stations as a JSON array. Each one has station, id, "
          "date, temperature with min and max in degrees Celsius, rain_mm, sky and verified.\f",
          end="")
    print(json.dumps(records, indent=2))


if __name__ == "__main__":
    main()
