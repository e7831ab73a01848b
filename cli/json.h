#pragma once
// The library's JSON of results, for the commands.

#include "bilevel/run/json.h"
#include "bilevel/run/result_json.h"
