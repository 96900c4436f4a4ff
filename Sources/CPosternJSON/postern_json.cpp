#include "postern_json.h"
extern "C" int postern_json_placeholder(void) { return 0; }
