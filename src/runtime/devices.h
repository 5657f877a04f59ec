#pragma once

namespace forge {

// Registers the backends that this build has (backends/registry.h).
void register_built_in_devices();

}  // namespace forge
