// libcurl's functions that curl_client.cc calls, as calls into the system's library, which is
// opened at the first of them: a program for many systems so has each one's TLS and certificates,
// and starts where there is no libcurl. Compiled with MOEFLUX_PORTABLE.
#include <dlfcn.h>

#include <cstdarg>

#include "hub/curl.h"

namespace {

// Debian, Fedora and others; Debian's two other builds have the same functions.
constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};
constexpr const char* kMissing =
    "no libcurl.so.4 on this system (Debian and Ubuntu: apt install libcurl4; Fedora: dnf install "
    "libcurl); meanwhile get the files with: hf download";

void* library() {
  static void* const opened = [] {
    void* found = nullptr;
    for (const char* name : kNames) {
      if (found == nullptr) found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return found;
  }();
  return opened;
}

// The library's function of that name; null where there is none. All are as old as 7.66.
template <typename Function>
Function* late(Function*, const char* name) {
  return library() == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library(), name));
}

}  // namespace

// Nothing is called before curl_global_init() has succeeded, but curl_easy_strerror().
#define LATE(function) late(&function, #function)

CURLcode curl_global_init(long flags) {
  const auto function = LATE(curl_global_init);
  const bool is_whole = LATE(curl_multi_poll) != nullptr;  // of 7.66, the newest of these
  return is_whole ? function(flags) : CURLE_FAILED_INIT;
}
const char* curl_easy_strerror(CURLcode code) {
  const auto function = LATE(curl_easy_strerror);
  return function == nullptr ? kMissing : function(code);
}
CURL* curl_easy_init() { return LATE(curl_easy_init)(); }
void curl_easy_cleanup(CURL* easy) { LATE(curl_easy_cleanup)(easy); }
// Whatever the option takes (a long, a pointer, a function, a curl_off_t) is one word in the
// place of the first variable argument on 64-bit Linux.
#undef curl_easy_setopt
CURLcode curl_easy_setopt(CURL* easy, CURLoption option, ...) {
  std::va_list arguments;
  va_start(arguments, option);
  void* const value = va_arg(arguments, void*);
  va_end(arguments);
  return LATE(curl_easy_setopt)(easy, option, value);
}
#undef curl_easy_getinfo
CURLcode curl_easy_getinfo(CURL* easy, CURLINFO info, ...) {
  std::va_list arguments;
  va_start(arguments, info);
  void* const into = va_arg(arguments, void*);
  va_end(arguments);
  return LATE(curl_easy_getinfo)(easy, info, into);
}
curl_slist* curl_slist_append(curl_slist* list, const char* text) {
  return LATE(curl_slist_append)(list, text);
}
void curl_slist_free_all(curl_slist* list) {
  if (list != nullptr) LATE(curl_slist_free_all)(list);
}
CURLM* curl_multi_init() { return LATE(curl_multi_init)(); }
CURLMcode curl_multi_cleanup(CURLM* multi) { return LATE(curl_multi_cleanup)(multi); }
#undef curl_multi_setopt
CURLMcode curl_multi_setopt(CURLM* multi, CURLMoption option, ...) {
  std::va_list arguments;
  va_start(arguments, option);
  void* const value = va_arg(arguments, void*);
  va_end(arguments);
  return LATE(curl_multi_setopt)(multi, option, value);
}
CURLMcode curl_multi_add_handle(CURLM* multi, CURL* easy) {
  return LATE(curl_multi_add_handle)(multi, easy);
}
CURLMcode curl_multi_remove_handle(CURLM* multi, CURL* easy) {
  return LATE(curl_multi_remove_handle)(multi, easy);
}
CURLMcode curl_multi_perform(CURLM* multi, int* running) {
  return LATE(curl_multi_perform)(multi, running);
}
CURLMcode curl_multi_poll(CURLM* multi, curl_waitfd* extra, unsigned int count, int wait_ms,
                          int* ready) {
  return LATE(curl_multi_poll)(multi, extra, count, wait_ms, ready);
}
CURLMsg* curl_multi_info_read(CURLM* multi, int* left) {
  return LATE(curl_multi_info_read)(multi, left);
}
