// The store: blobs, manifests, locks, gc; and that a killed process leaves a valid one.
#include "store/store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "../support/expect_error.h"
#include "base/paths.h"
#include "formats/forge_manifest.h"
#include "store/blake3.h"
#include "store/reference.h"

namespace forge {
namespace {

namespace fs = std::filesystem;

std::string manifest_of(const Store& store, const std::vector<Digest>& blobs) {
    Manifest manifest;
    manifest.origin = "gguf";
    manifest.layout = "rows";
    manifest.model = nlohmann::ordered_json::object();
    manifest.provenance = nlohmann::ordered_json::object();
    for (const Digest& digest : blobs) manifest.blobs.push_back({"file", "f" + digest.hex().substr(0, 8), digest, *store.size_of(digest), 0, {}});
    return manifest.dump();
}

ModelName name_of(const std::string& text) { return *ModelName::parse(text); }

std::size_t partials(const Store& store) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(store.root() / "partial"), fs::directory_iterator()));
}

TEST(ModelName, TakesNamesAndNothingElse) {
    EXPECT_EQ(name_of("qwen3").text(), "qwen3:latest");
    EXPECT_EQ(name_of("qwen3:q4_k_m").tag, "q4_k_m");
    EXPECT_EQ(name_of("org/Model-1.5:v2").name, "org/Model-1.5");
    for (const char* text : {"", ":", "a:", ":b", "a:b:c", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a b", "a+b", "a@b", "-a", "a:b/c", "a\n"}) EXPECT_FALSE(ModelName::parse(text)) << text;
    EXPECT_FALSE(ModelName::parse(std::string(300, 'a')));
}

TEST(Store, KeepsBlobsByTheirDigest) {
    const TestFolder folder;
    const Store store(folder.path());
    const Digest digest = store.put("hello");
    EXPECT_EQ(digest, blake3(std::as_bytes(std::span("hello", 5))));
    EXPECT_TRUE(store.has(digest));
    EXPECT_EQ(store.size_of(digest), 5u);
    EXPECT_EQ(store.open_blob(digest)->bytes().size(), 5u);
    EXPECT_EQ(store.put("hello"), digest);
    EXPECT_EQ(store.blobs().size(), 1u);
    EXPECT_EQ(partials(store), 0u);
    const Digest other = blake3({});
    EXPECT_FALSE(store.has(other));
    EXPECT_ERROR(store.open_blob(other), not_found, other.hex());
    // A blob is read-only.
    EXPECT_EQ(fs::status(store.blob_path(digest)).permissions() & fs::perms::owner_write, fs::perms::none);
}

TEST(Store, AdoptsAFileOnlyWithTheDigestThatIsExpected) {
    const TestFolder folder;
    const Store store(folder.path());
    const fs::path file = store.partial("download");
    write_file_atomically(file, "wrong bytes");
    const Digest expected = blake3(std::as_bytes(std::span("right", 5)));
    EXPECT_ERROR(store.adopt(file, expected), invalid_input, expected.hex());
    EXPECT_TRUE(fs::exists(file)) << "the caller decides what becomes of it";
    EXPECT_FALSE(store.has(expected));
    write_file_atomically(file, "right");
    EXPECT_EQ(store.adopt(file, expected), expected);
    EXPECT_FALSE(fs::exists(file));
    write_file_atomically(file, "right");  // a second time: it is there already
    EXPECT_EQ(store.adopt(file), expected);
    EXPECT_FALSE(fs::exists(file));
    for (const char* key : {"", "a/b", "..", ".hidden"}) EXPECT_ERROR(store.partial(key), internal, "no name");
}

// Changes one bit of a file, whatever its rights.
void flip_bit(const fs::path& path, std::size_t at) {
    std::string bytes = read_file(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file_atomically(path, bytes);
}

TEST(Store, ReplacesADamagedBlob) {
    const TestFolder folder;
    const Store store(folder.path());
    const std::string text(3'000'000, 'x');
    const Digest digest = store.put(text);
    EXPECT_TRUE(store.is_intact(digest, text.size()));
    EXPECT_FALSE(store.is_intact(digest, text.size() + 1));
    EXPECT_FALSE(store.is_intact(blake3({}), 0)) << "it is not there";
    for (const std::size_t at : {std::size_t{0}, std::size_t{1} << 20, text.size() - 1}) {
        flip_bit(store.blob_path(digest), at);
        EXPECT_EQ(store.size_of(digest), text.size());
        EXPECT_FALSE(store.is_intact(digest, text.size()));
        EXPECT_EQ(store.put(text), digest);
        EXPECT_TRUE(store.is_intact(digest, text.size())) << at;
        flip_bit(store.blob_path(digest), at);
        write_file_atomically(store.partial("large"), text);
        EXPECT_EQ(store.adopt(store.partial("large"), digest, digest), digest);
        EXPECT_TRUE(store.is_intact(digest, text.size())) << at;
    }
    write_file_atomically(store.blob_path(digest), text.substr(1));  // cut off
    EXPECT_EQ(store.put(text), digest);
    EXPECT_TRUE(store.is_intact(digest, text.size()));
    EXPECT_EQ(partials(store), 0u);
    EXPECT_EQ(store.blobs().size(), 1u);
}

TEST(Store, GcRemovesAndCountsFolders) {
    const TestFolder folder;
    const Store store(folder.path());
    fs::create_directories(store.partial("pull-x.ranges"));
    write_file_atomically(store.partial("pull-x.ranges") / "0-10", "12345");
    const GcResult done = store.gc();
    EXPECT_EQ(done.bytes, 5u);
    EXPECT_EQ(partials(store), 0u);
}

TEST(Store, WritesAManifestOnlyWhenItsBlobsAreThere) {
    const TestFolder folder;
    const Store store(folder.path());
    const Digest a = store.put("a"), b = store.put("bb");
    const std::string text = manifest_of(store, {a, b});
    store.write_manifest(name_of("m:1"), text);
    EXPECT_EQ(store.read_manifest(name_of("m:1")), text);
    EXPECT_FALSE(store.read_manifest(name_of("m:2")));
    fs::remove(store.blob_path(b));
    EXPECT_ERROR(store.write_manifest(name_of("m:2"), text), invalid_input, b.hex());
    write_file_atomically(store.blob_path(b), "longer");
    EXPECT_ERROR(store.write_manifest(name_of("m:2"), text), invalid_input, "2 bytes");
    EXPECT_ERROR(store.write_manifest(name_of("m:2"), "{}"), invalid_input, "m:2");
    store.write_manifest(name_of("org/x:1"), manifest_of(store, {a}));
    EXPECT_EQ(store.list(), (std::vector{name_of("m:1"), name_of("org/x:1")}));
    EXPECT_TRUE(store.remove_manifest(name_of("m:1")));
    EXPECT_FALSE(store.remove_manifest(name_of("m:1")));
}

TEST(Store, GcRemovesWhatNoManifestNames) {
    const TestFolder folder;
    const Store store(folder.path());
    const Digest shared = store.put("shared"), first = store.put("first"), second = store.put("second"), orphan = store.put("orphan");
    store.write_manifest(name_of("a"), manifest_of(store, {shared, first}));
    store.write_manifest(name_of("b"), manifest_of(store, {shared, second}));
    write_file_atomically(store.partial("left"), "over");
    const GcResult dry = store.gc(true);
    EXPECT_EQ(dry.blobs, 1u);
    EXPECT_TRUE(store.has(orphan));
    const GcResult done = store.gc();
    EXPECT_EQ(done.blobs, 1u);
    EXPECT_EQ(done.partials, 1u);
    EXPECT_EQ(done.bytes, 10u);
    EXPECT_FALSE(store.has(orphan));
    EXPECT_EQ(partials(store), 0u);
    store.remove_manifest(name_of("a"));
    store.gc();
    EXPECT_TRUE(store.has(shared));
    EXPECT_FALSE(store.has(first));
    EXPECT_TRUE(store.has(second));
}

TEST(Store, GcRemovesNothingWhenAManifestCannotBeRead) {
    const TestFolder folder;
    const Store store(folder.path());
    const Digest orphan = store.put("orphan");
    write_file_atomically(store.manifest_path(name_of("broken")), "not json");
    EXPECT_ERROR(store.gc(), invalid_input, "broken@latest.json");
    EXPECT_TRUE(store.has(orphan));
}

TEST(Store, GcWaitsForWhoAddsAModel) {
    const TestFolder folder;
    const Store store(folder.path());
    std::atomic<bool> finished{false};
    Digest digest;
    std::thread collector;
    {
        const StoreLock lock = store.use();
        digest = store.put("a blob without a manifest yet");
        collector = std::thread([&] {
            store.gc();
            finished = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        EXPECT_FALSE(finished);
        EXPECT_TRUE(store.has(digest));
        store.write_manifest(name_of("m"), manifest_of(store, {digest}));
    }
    collector.join();
    EXPECT_TRUE(store.has(digest));
}

TEST(Store, OnePartialFileHasOneWorker) {
    const TestFolder folder;
    const Store store(folder.path());
    StoreLock mine = store.lock_partial("k", true);
    EXPECT_TRUE(mine);
    EXPECT_FALSE(store.lock_partial("k", false));
    EXPECT_TRUE(store.lock_partial("other", false));
    mine = StoreLock();
    EXPECT_TRUE(store.lock_partial("k", false));
}

TEST(Reference, IsAPathOrAName) {
    const TestFolder folder;
    ::setenv("FORGE_HOME", folder.path().c_str(), 1);
    const Store store = Store::open();
    store.write_manifest(name_of("tiny:1"), manifest_of(store, {store.put("x")}));
    EXPECT_EQ(resolve_model("tiny:1"), store.manifest_path(name_of("tiny:1")).string());
    EXPECT_EQ(resolve_model(folder.path().string()), folder.path().string());
    EXPECT_EQ(stored_model(store, "tiny:1").text(), "tiny:1");
    EXPECT_ERROR(stored_model(store, "tiny"), not_found, "no model tiny:latest in the store");
    EXPECT_ERROR(stored_model(store, folder.path().string()), not_found, "-o NAME puts it there");
    EXPECT_ERROR(stored_model(store, "hf:a/b"), not_found, "forge pack hf:a/b -o NAME");
    EXPECT_ERROR(stored_model(store, "a b"), not_found, "no model a b in the store");
    store.write_manifest(name_of("host.example/x:1"), manifest_of(store, {store.put("x")}));
    EXPECT_EQ(stored_model(store, "oci:host.example/x:1").text(), "host.example/x:1");
    EXPECT_ERROR(resolve_model("tiny"), not_found, "no model tiny:latest in the store");
    EXPECT_ERROR(resolve_model("no/such/file.gguf"), not_found, "there is no file or folder no/such/file.gguf");
    EXPECT_ERROR(resolve_model("a b"), not_found, "there is no file or folder a b");
    ::unsetenv("FORGE_HOME");
}

// Adds and removes models and collects, until it is killed.
[[noreturn]] void churn(const Store& store, unsigned seed) {
    std::mt19937 random(seed);
    for (;;) {
        const unsigned what = random() % 8;
        const ModelName name = name_of("m" + std::to_string(random() % 4));
        if (what == 0) {
            store.gc();
        } else if (what == 1) {
            store.remove_manifest(name);
        } else {
            const StoreLock lock = store.use();
            std::vector<Digest> blobs;
            for (int i = 0; i < 3; ++i) blobs.push_back(store.put("blob " + std::to_string(random() % 40)));
            const std::string key = "work-" + std::to_string(seed);
            write_file_atomically(store.partial(key), "large " + std::to_string(random() % 40));
            blobs.push_back(store.adopt(store.partial(key)));
            store.write_manifest(name, manifest_of(store, blobs));
        }
    }
}

TEST(Store, SurvivesKillsAtAnyMoment) {
    const TestFolder folder;
    const Store store(folder.path());
    store.write_manifest(name_of("kept"), manifest_of(store, {store.put("always there")}));
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        pid_t children[2];
        for (int c = 0; c < 2; ++c) {
            children[c] = ::fork();
            ASSERT_GE(children[c], 0);
            if (children[c] == 0) {
                try {
                    churn(store, static_cast<unsigned>(2 * round + c));
                } catch (...) {
                    ::_exit(3);
                }
            }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
        for (const pid_t child : children) ::kill(child, SIGKILL);
        for (const pid_t child : children) {
            int status = 0;
            ::waitpid(child, &status, 0);
            EXPECT_TRUE(WIFSIGNALED(status)) << "round " << round << ": a child failed by itself";
        }
        // Every manifest is whole and its blobs have their bytes.
        bool kept = false;
        for (const ModelName& name : store.list()) {
            const auto text = store.read_manifest(name);
            ASSERT_TRUE(text);
            for (const ManifestBlob& blob : Manifest::parse(*text, name.text()).blobs) {
                ASSERT_EQ(store.size_of(blob.digest), blob.bytes);
                ASSERT_EQ(blake3_file(store.blob_path(blob.digest)), blob.digest);
            }
            kept = kept || name == name_of("kept");
        }
        ASSERT_TRUE(kept);
        if (round % 10 != 9) continue;
        store.gc();
        std::set<Digest> named;
        for (const ModelName& name : store.list())
            for (const ManifestBlob& blob : Manifest::parse(*store.read_manifest(name), name.text()).blobs) named.insert(blob.digest);
        ASSERT_EQ(store.blobs().size(), named.size()) << "an orphan is left";
        ASSERT_EQ(partials(store), 0u);
    }
}

}  // namespace
}  // namespace forge
