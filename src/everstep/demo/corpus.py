"""The instructions of the demo's agent, and the small library that it reads: five notes on how an island could make its electricity.

All of it is invented. No I/O.
"""

from __future__ import annotations

INSTRUCTIONS = (
    "You help a small council to decide. You are given a question, notes from a library, and tasks, one at a time. Each task begins with a verb. "
    "Compare: name the options that are to be looked into, separated by commas, and nothing else. Judge: from the note before it, say in how many "
    "hours of the year the option delivers, what a kilowatt-hour costs in cents, and how many years it takes; leave out opinions, and never invent "
    "a figure: if the note does not have it, say so. Decide: of all options that were judged, name the one that is best for the wish that stands "
    "behind the verb, and say of how many. If two are equal, take the one that was judged first. Write: one sentence for the minutes of the council, "
    "with the option, its figures and the yearly bill, which a tool works out for you. You have two tools. search finds the note that fits some "
    "words best. bill works out what 300 homes pay in a year at a given price. The council reads what you write aloud, so write whole numbers, no "
    "abbreviations and no lists. It may change its mind about what matters most; then decide again from what you know, without new searches."
)

NOTES = {
    "wind turbines": (
        "Two wind turbines on the northern ridge would be the usual choice for an island of this size. The measuring mast has stood there for "
        "three winters, and its record is good: the turbines would deliver in 44 % of all hours, most of them between October and March, when "
        "the houses need the most. Power from them costs 9 cents per kilowatt-hour, the foundations and the crane barge included. The "
        "foundations can only be cast in a dry summer, so it would take 2 years. Objections are known: the ridge is seen from the ferry, and "
        "the bird wardens ask for a stop during the migration in April. In still weeks the old diesel engine would have to run as before."
    ),
    "tidal stream": (
        "The sound between the island and the mainland runs at four knots, twice a day in each direction. A row of six tidal turbines on the "
        "bed of the sound would deliver in 83 % of all hours; the gaps are the slack waters, which are known a century ahead, so a small "
        "battery covers them. Power costs 17 cents per kilowatt-hour, because every repair needs a ship and a diver. With the permits for "
        "the seal colony it would take 5 years. A trial with one turbine ran for eleven months in the next sound and lost a blade to a log. "
        "The makers have changed the blade since, and offer a warranty of ten years on it."
    ),
    "solar panels": (
        "The roofs of the school, the fish hall and about ninety houses face south without shade. Solar panels on all of them would deliver "
        "in 31 % of all hours, few of them in winter, when the sun stands six degrees high at noon. They are the cheapest that can be had: "
        "power costs 7 cents per kilowatt-hour, and the island's own electricians can do the work. It would take 1 year. Salt on the glass is "
        "no great matter, rain washes it off. What is missing in winter would have to come from somewhere else, at a price that is not in "
        "these figures, and the switchboard in the harbour would have to be replaced first."
    ),
    "biogas plant": (
        "The fish hall throws away nine tons a week, and the farms have slurry. A biogas plant beside the hall would deliver in 72 % of all "
        "hours, limited by what there is to feed it with in spring. Power costs 22 cents per kilowatt-hour, of which a third is for the "
        "people who look after it day and night. It would take 3 years. The smell is the first thing that everybody asks about; the plant "
        "that was visited on the coast could not be smelled from the road. What remains after the gas is made goes back to the fields, which "
        "saves the farms a part of their fertilizer. If the fish hall closes, there is not enough to feed it."
    ),
    "sea cable": (
        "Eleven kilometres of cable along the bed of the sound would join the island to the grid of the mainland. It would deliver in 97 % of "
        "all hours; the rest are faults on the mainland and one week of inspection. Power costs 19 cents per kilowatt-hour, most of it for "
        "the loan on the cable. The ship that lays it is booked out, so it would take 4 years. The cable works in both directions: whatever "
        "the island makes later can be sold over it. An anchor can cut it, and then the repair takes a month. The old diesel engine would "
        "stay for that case, tested once a month, as the fire service wants it anyway."
    ),
}  # fmt: skip


def find(words: str) -> str:
    """Return the note that contains these words most often."""
    wanted = words.lower().split()
    return max(NOTES.values(), key=lambda text: sum(text.lower().count(word) for word in wanted))
