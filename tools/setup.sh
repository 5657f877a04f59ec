# What quickstart, check and .ci/run share: packages, building, models. Sourced by them
# (bash 3.2, so that macOS's own will do); each step is a no-op when already done.

forge_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
    step() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
else
    step() { printf '==> %s\n' "$*" >&2; }
fi
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

cores() { getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

# Compiling takes up to about 1 GiB a job, so a small machine gets fewer jobs than cores.
build_jobs() {
    local jobs memory
    jobs=$(cores)
    memory=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo 2>/dev/null || true)
    [ -n "$memory" ] && [ "$memory" -lt "$jobs" ] && jobs=$memory
    [ "$jobs" -lt 1 ] && jobs=1
    echo "$jobs"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        die "installing packages needs root: run this as root or install sudo. Wanted: $*"
    fi
}

# need_packages LEVEL: build | test | fuzz, each with what the earlier ones need.
need_packages() {
    case "$(uname -s)" in
        Linux) need_apt "$1" ;;
        Darwin) need_brew "$1" ;;
        *) die "Forge builds on Debian Linux and macOS; this is $(uname -s)" ;;
    esac
}

need_apt() {
    command -v apt-get >/dev/null 2>&1 ||
        die "this script installs packages with apt-get, which is not here; CONTRIBUTING.md lists what Forge needs"
    local wanted="g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev libpcre2-dev
                  libutf8proc-dev libxxhash-dev librust-blake3-dev libedit-dev libboost1.81-dev libcurl4-openssl-dev libssl-dev
                  python3 python3-pip ca-certificates"
    [ "$1" = test ] || [ "$1" = fuzz ] && wanted="$wanted libgtest-dev libgmock-dev"
    [ "$1" = fuzz ] && wanted="$wanted clang-19 libclang-rt-19-dev"
    # Metal kernels are tested where these can be had; elsewhere those tests are skipped with a sentence.
    [ "$1" = test ] || [ "$1" = fuzz ] && command -v apt-cache >/dev/null 2>&1 && apt-cache show clang-19 >/dev/null 2>&1 &&
        wanted="$wanted clang-19 lld-19 llvm-19 libobjc-12-dev libblocksruntime-dev"
    # The page in a browser and the example for nginx are tested where these can be had.
    [ "$1" = fuzz ] && command -v apt-cache >/dev/null 2>&1 && apt-cache show chromium nginx-light >/dev/null 2>&1 &&
        wanted="$wanted chromium nginx-light"
    local package missing=""
    for package in $wanted; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    step "Installing$missing"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >&2 || die "apt-get update failed: is the network reachable?"
    # shellcheck disable=SC2086
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing >&2 ||
        die "apt-get could not install:$missing"
}

need_brew() {
    command -v brew >/dev/null 2>&1 || die "Homebrew is not here: install it from its own site, then run this again"
    local wanted="cmake ninja pkgconf fmt nlohmann-json cli11 pcre2 utf8proc xxhash blake3 libedit boost curl"
    [ "$1" = test ] || [ "$1" = fuzz ] && wanted="$wanted googletest"
    [ "$1" = fuzz ] && wanted="$wanted llvm"
    local package missing=""
    for package in $wanted; do
        brew list --formula "$package" >/dev/null 2>&1 || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    step "Installing$missing"
    # shellcheck disable=SC2086
    brew install $missing >&2 || die "brew could not install:$missing"
}

# configure_and_build PRESET "TARGET.." [cmake options]: into build/PRESET.
configure_and_build() {
    local preset=$1 target=$2
    shift 2
    (cd "$forge_root" && cmake --preset "$preset" "$@" >"/tmp/forge-configure.$$" 2>&1) ||
        { cat "/tmp/forge-configure.$$" >&2; rm -f "/tmp/forge-configure.$$"; die "cmake could not configure the build"; }
    rm -f "/tmp/forge-configure.$$"
    # shellcheck disable=SC2086
    cmake --build "$forge_root/build/$preset" --target $target -j "$(build_jobs)" >&2 || die "the build failed"
}

# fetch_model NAME: prints the path of the model in the user's cache, downloading it when absent.
fetch_model() { python3 "$forge_root/tools/fetch_model.py" "$1"; }

# fetch_nvrtc: prints the path of NVIDIA's run-time compiler in the user's cache, downloading it when absent.
fetch_nvrtc() { python3 "$forge_root/tools/fetch_nvrtc.py"; }

# Whether there is such a compiler where Forge looks for it.
has_nvrtc() {
    [ -n "${FORGE_NVRTC:-}" ] || compgen -G "/usr/local/cuda/lib64/libnvrtc.so.*" >/dev/null ||
        { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } 2>/dev/null | grep 'libnvrtc\.so' >/dev/null
}

# run_tests BUILD_FOLDER [ctest options]: ctest, then why tests were skipped, then ctest's summary once more.
run_tests() {
    local folder=$1 log status=0
    shift
    log=$(mktemp "${TMPDIR:-/tmp}/forge-ctest.XXXXXX")
    step "Running the tests"
    ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$(cores)" "$@" 2>&1 | tee "$log" || status=$?
    local reasons
    reasons=$(awk '/^\[  SKIPPED \]/ {next} /: Skipped$/ {getline; if ($0 != "") count[$0]++}
                   END {for (r in count) printf "%6d  %s\n", count[r], r}' "$folder/Testing/Temporary/LastTest.log" 2>/dev/null)
    if [ -n "$reasons" ]; then
        printf '\nSkipped tests, by reason:\n%s\n\n' "$reasons"
        sed -n '/% tests passed/,$p' "$log"
    fi
    rm -f "$log"
    return $status
}
