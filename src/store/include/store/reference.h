// One way to name a model, for every command: a path, NAME[:TAG] in the store, hf:ORG/NAME that
// was pulled into the hub's cache, oci:HOST/NAME[:TAG] that was pulled into the store.
#pragma once

#include <string>

#include "store/store.h"

namespace forge {

// The path that open_model_file() takes. What exists as a path is one; else a name is looked up in the
// store. Error (not_found) says where it was looked for, or how to fetch it.
std::string resolve_model(const std::string& reference);

// The name of a model that is in the store, for commands that are about the store: NAME[:TAG], or oci:HOST/NAME[:TAG]
// that was pulled. Error (not_found) otherwise; of a path or hf:ORG/NAME it says how the model gets into the store.
ModelName stored_model(const Store& store, const std::string& reference);

}  // namespace forge
