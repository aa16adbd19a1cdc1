#define STORE_SET InstructionSet::baseline
#define STORE_TARGET
#include "store/rows/window_path.inc"
