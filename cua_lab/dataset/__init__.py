"""Data for computer use: read public formats, check quality, grade, make, convert, measure.

The one row shape of this package is `sample.GroundingSample`; the one rule is that a coordinate
never travels without the name of the space it is in.
"""
