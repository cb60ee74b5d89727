// Declarations of what metal_gpu.mm uses of Foundation, for clang to check it where there is no
// Apple SDK. Names and types are Apple's public interface; nothing here is ever linked.
#pragma once

#include <cstddef>
#include <cstdint>

typedef unsigned long NSUInteger;
#define BOOL bool
#define YES true
#define NO false
#define nil nullptr

typedef struct {
  unsigned long state;
  id __unsafe_unretained* itemsPtr;
  unsigned long* mutationsPtr;
  unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSObject
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject>
+ (instancetype)alloc;
- (instancetype)init;
@end

@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained[])buffer
                                    count:(NSUInteger)count;
@end

@interface NSString : NSObject
+ (instancetype)stringWithUTF8String:(const char*)text;
@property(readonly) const char* UTF8String;
@end

@interface NSError : NSObject
@property(readonly, copy) NSString* localizedDescription;
@end

@interface NSArray<T> : NSObject <NSFastEnumeration>
@end
