// Tells the sanitizer of a build: MF_ADDRESS_SANITIZER, MF_THREAD_SANITIZER. g++ and clang say it
// in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define MF_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MF_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define MF_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MF_THREAD_SANITIZER 1
#endif
#endif
