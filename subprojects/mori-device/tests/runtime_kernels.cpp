// Entry points of the runtime's test kernels.
#include "runtime_kernels.hpp"

MORI_KERNEL(mori_test_lockstep, mori::device_test::lockstep_args, mori::device_test::lockstep);
MORI_KERNEL(mori_test_deserter, mori::device_test::deserter_args, mori::device_test::deserter);
MORI_KERNEL(mori_test_rows, mori::device_test::rows_args, mori::device_test::rows);
MORI_KERNEL(mori_test_collectives, mori::device_test::collectives_args,
            mori::device_test::collectives);
