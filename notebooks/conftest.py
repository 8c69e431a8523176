"""The lessons' kernels get the environment of the stored outputs, also when only they are run."""

import os

from cua_lab.notebooks import set_environment

set_environment()
os.environ["CUA_LAB_LESSON_RECIPE"] = "smoke"
