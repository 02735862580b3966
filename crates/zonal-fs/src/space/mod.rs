//! Where data goes: zones and their accounts, open zones, victims, credits. Pure decisions.
