// Media types and annotations of models in registries.
#pragma once

namespace forge {

inline constexpr const char* kOciArtifact = "application/vnd.forge.model.v1";
inline constexpr const char* kOciConfig = "application/vnd.forge.manifest.v1+json";
inline constexpr const char* kOciBlob = "application/vnd.forge.blob.v1";
inline constexpr const char* kOciBlake3 = "dev.forge.blake3";
inline constexpr const char* kOciTitle = "org.opencontainers.image.title";

}  // namespace forge
