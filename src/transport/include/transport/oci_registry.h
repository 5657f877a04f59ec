// The distribution protocol of OCI registries: blobs by SHA-256, manifests by tag.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/download.h"
#include "transport/oci_reference.h"
#include "transport/remote_digest.h"

namespace forge {

// One "scheme name=value, ..." of a WWW-Authenticate header.
struct AuthChallenge {
    std::string scheme;  // lower case
    std::vector<std::pair<std::string, std::string>> parameters;  // names in lower case
    std::string parameter(std::string_view name) const;           // or ""
};
std::vector<AuthChallenge> parse_challenges(std::string_view header);

struct OciDescriptor {
    std::string media_type;
    RemoteDigest digest;
    std::uint64_t size = 0;
    std::vector<std::pair<std::string, std::string>> annotations;
    std::string annotation(std::string_view name) const;  // or ""
};

struct OciManifest {
    std::string artifact_type;
    OciDescriptor config;
    std::vector<OciDescriptor> layers;

    std::string dump() const;  // the same manifest has the same text
    // Error naming `where` and what is wrong.
    static OciManifest parse(std::string_view text, const std::string& where);
};

class OciRegistry {
  public:
    // plain_http: without encryption also to other machines (no credentials are sent then); to this
    // machine itself it is http anyway.
    OciRegistry(const OciReference& reference, HttpOptions options, bool plain_http);

    // ---- Blobs. Safe to call from several threads, each with a connection of its own.
    bool has_blob(HttpConnection& connection, const RemoteDigest& digest, std::uint64_t size);
    // Small blobs from memory, large ones from a file in pieces of `piece` bytes; a dropped connection goes on
    // where the registry says it is. `sent` hears of bytes handed over (again, where they had to be repeated).
    // `from`: other repositories of this registry that may hold the blob: it is then shared, not sent.
    // Returns whether bytes travelled.
    bool upload(HttpConnection& connection, const RemoteDigest& digest, const std::filesystem::path& file, std::uint64_t size, const std::vector<std::string>& from,
                const std::function<void(std::uint64_t)>& sent, std::uint64_t piece = 64u << 20);
    // Where a blob's bytes are, for download().
    Location locate(HttpConnection& connection, const RemoteDigest& digest);

    // ---- Manifests
    void put_manifest(const std::string& text);
    std::string get_manifest();  // of the reference's tag, its digest checked

  private:
    std::string url(const std::string& rest) const;
    HttpAnswer send(HttpConnection& connection, HttpRequest request, bool retrying = true);
    std::string authorization();
    void authorize(HttpConnection& connection, const HttpAnswer& refusal, const std::string& used);
    void check(const HttpAnswer& answer, const std::string& what) const;
    bool begin_upload(HttpConnection& connection, const RemoteDigest& digest, const std::vector<std::string>& from, std::string& session, std::uint64_t& piece);
    std::uint64_t progress_of(HttpConnection& connection, std::string& session);

    OciReference reference_;
    Url base_;
    HttpConnection connection_;  // for manifests
    std::mutex mutex_;           // guards authorization_
    std::string authorization_;  // value of the header, once the registry asked for it
};

}  // namespace forge
