"""What the Python tests share."""

import os

# One thread a program, here and in what the tests start: the models are tiny, threads that wait for each other take more of the
# processor than they give, and the tests run side by side. A test of threads asks for them by an option.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
