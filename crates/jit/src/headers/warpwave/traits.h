// Types asked about at compile time.
#pragma once

namespace __warpwave {
template <bool, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <class T> struct is_integer { static const bool value = false; };
template <> struct is_integer<bool> { static const bool value = true; };
template <> struct is_integer<char> { static const bool value = true; };
template <> struct is_integer<signed char> { static const bool value = true; };
template <> struct is_integer<unsigned char> { static const bool value = true; };
template <> struct is_integer<short> { static const bool value = true; };
template <> struct is_integer<unsigned short> { static const bool value = true; };
template <> struct is_integer<int> { static const bool value = true; };
template <> struct is_integer<unsigned int> { static const bool value = true; };
template <> struct is_integer<long> { static const bool value = true; };
template <> struct is_integer<unsigned long> { static const bool value = true; };
template <> struct is_integer<long long> { static const bool value = true; };
template <> struct is_integer<unsigned long long> { static const bool value = true; };
template <class T> struct is_float { static const bool value = false; };
template <> struct is_float<float> { static const bool value = true; };
template <> struct is_float<double> { static const bool value = true; };
template <class T> struct is_arithmetic { static const bool value = is_integer<T>::value || is_float<T>::value; };
template <class A, class B> struct is_same { static const bool value = false; };
template <class A> struct is_same<A, A> { static const bool value = true; };

// The bits of one type read as another of the same size.
template <class To, class From> __WW_BOTH To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    __builtin_memcpy(&to, &from, sizeof(To));
    return to;
}
} // namespace __warpwave
